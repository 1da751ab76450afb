"""Every knob and what it costs, without JAX."""
