"""Records read as what the site shows."""
