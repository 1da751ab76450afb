"""Trains and evaluates language models in JAX."""
