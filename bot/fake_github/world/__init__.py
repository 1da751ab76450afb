"""People, threads, code and git in memory, and their JSON shapes."""
