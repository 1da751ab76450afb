"""The sandbox's web pages."""
