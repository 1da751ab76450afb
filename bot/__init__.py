"""The lab on GitHub: rules, messages, site."""
