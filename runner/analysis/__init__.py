"""Pure statistics: estimates, verdicts, scaling laws, rankings."""
