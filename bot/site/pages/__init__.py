"""Facts to pages, one module a kind of page."""
