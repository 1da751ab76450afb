"""The regatta command and what it prints."""
