"""Output of the lab: signed files, W&B, charts, previews."""
