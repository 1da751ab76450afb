"""Small tools that know nothing about experiments."""
