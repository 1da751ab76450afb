"""Pure rules from facts to actions: one file per feature."""
