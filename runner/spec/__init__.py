"""experiment.yaml to Experiment. Reads files and runs nothing."""
