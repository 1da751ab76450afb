"""The bot as a process: server, Actions job, live pages, health."""
