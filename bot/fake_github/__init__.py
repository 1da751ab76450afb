"""The stand-in for GitHub; imported by demo, CLI and tests only."""
