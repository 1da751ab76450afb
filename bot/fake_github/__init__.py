"""The server that puts them together; imported by demo, CLI and tests only."""
