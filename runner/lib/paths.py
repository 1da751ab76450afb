"""Where the lab is installed on this machine, and the names of its packages."""

from pathlib import Path

LAB = Path(__file__).parents[2]  # the folder of the lab's packages
ROOMS = ("engine", "runner", "bot")  # the lab's packages, which an experiment's code may import
SHOWN = ("engine", "runner")  # the packages that a job runs, and that code in a box can read
