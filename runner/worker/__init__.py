"""The code that runs inside a job. Nothing imports it; it is started by name."""
