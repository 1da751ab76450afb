"""Text to tokens on disk, and which tokens each step sees."""
