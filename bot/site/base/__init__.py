"""The common parts of all pages: files to write, rows, templates, drawings."""
