"""Setup and checks for operators."""
