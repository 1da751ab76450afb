"""Who runs next and what a budget allows; the same rules played on a virtual clock."""
