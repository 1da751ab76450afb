"""Facts to pages, one module per kind of page."""
