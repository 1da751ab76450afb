"""Records as the site shows them."""
