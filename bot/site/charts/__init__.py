"""Facts to drawings."""
