"""The lab's nouns: every record, job report, device and track, and what follows from them alone."""
