"""Text to tokens on disk, and which tokens step n sees."""
