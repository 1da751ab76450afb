"""What all pages share: files to write, rows, templates, drawings."""
