"""The functions of the built-in steps."""
