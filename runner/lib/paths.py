"""Where the lab lies on this machine, and what its packages are."""

from pathlib import Path

LAB = Path(__file__).parents[2]  # where the lab's packages lie
ROOMS = ("engine", "runner", "bot")  # the lab's, which an experiment's code may import
SHOWN = ("engine", "runner")  # those that a job runs, and code in a box can read
