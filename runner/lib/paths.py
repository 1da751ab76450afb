"""Where the lab lies on this machine."""

from pathlib import Path

LAB = Path(__file__).parents[2]  # where the lab's packages lie
HARDWARE = Path(__file__).parents[2] / "hardware.yaml"  # the lab's own, where it has one
