"""`schema`: experiment.yaml as editors understand it."""

from runner.spec import json_schema


def command() -> None:
    """Print the JSON Schema of experiment.yaml, with which editors complete and check it."""
    print(json_schema.text(), end="")
