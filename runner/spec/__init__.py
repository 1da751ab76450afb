"""experiment.yaml to Experiment: read, never run."""
