"""The state in memory (people, threads, code and git), and its JSON."""
