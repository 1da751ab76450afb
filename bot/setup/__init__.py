"""What an operator installs and checks."""
