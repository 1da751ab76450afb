"""Runs untrusted code so that it cannot reach anything outside."""
