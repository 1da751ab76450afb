"""`schema`: experiment.yaml as editors understand it."""

from pathlib import Path

from runner.schema import lab_config
from runner.spec import json_schema


def command() -> None:
    """Print the JSON Schema of experiment.yaml, with which editors complete and check it."""
    print(json_schema.text(lab_config.find(Path())), end="")
