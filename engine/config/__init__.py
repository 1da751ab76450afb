"""All options of the engine and what they cost, without JAX."""
