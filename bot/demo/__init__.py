"""The lab's story, played on this machine."""
