"""Speaks GitHub: rules, messages, site."""
