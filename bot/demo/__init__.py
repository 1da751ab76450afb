"""The demo: the lab's story, played on this machine."""
