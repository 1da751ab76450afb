"""What leaves the lab: signed files, W&B, charts, previews."""
