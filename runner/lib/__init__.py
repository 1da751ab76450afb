"""Small tools that know nothing of experiments."""
