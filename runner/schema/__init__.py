"""The lab's data types: every record, job report, device and track, and pure functions of them."""
