"""What runs inside a job; imported by nobody, started by name."""
