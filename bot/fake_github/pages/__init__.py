"""Its web pages."""
