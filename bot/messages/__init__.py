"""Facts to Markdown."""
