"""The fingerprint of a plan: a digest of everything that an approval approves."""

import hashlib
from typing import Any

from runner.lib.canonical_json import to_json
from runner.schema.record import Plan


def fingerprint(plan: Plan) -> str:
    """SHA-256 over what an approval approves: the plan without its texts and its estimate. A step's
    fingerprint covers its inputs and code; its configuration covers its arm."""
    words = ("title", "experiment", "code_sha256", "compiled", "cost", "fingerprint")
    of_the_lab = ("devices", "track")  # what it says of what the plan names
    left_out: dict[str, Any] = dict.fromkeys((*words, *of_the_lab), True)
    if plan.steps:
        of_steps = {"inputs", "code", "alias", "config", "turn"}
        left_out |= {"arms": True, "steps": {"__all__": of_steps}}
    bound = plan.model_dump(mode="json", exclude=left_out)
    for name, step in plan.steps.items():  # already JSON, and most of a plan
        bound["steps"][name]["config"] = step.config
    return hashlib.sha256(to_json(bound)).hexdigest()
