"""The `regatta` command and its output."""
