"""Facts to actions, pure: one file a feature."""
