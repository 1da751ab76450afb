"""What models said in `generate` steps: completions of prompts that were chosen before the run."""

import io
from collections.abc import Mapping

from runner.history import step_runs
from runner.lib import bounds
from runner.lib.bounds import Count, Figure
from runner.schema.job_reports import Refused, Report
from runner.schema.record import Plan, StepEnd
from runner.store.store import Store

FILE = "completions.jsonl"
MAX_LINE = 1 << 20  # bytes


class Sample(Report):
    """A line of the output of a `generate` step."""

    model: str
    prompt: str
    seed: Count
    completion: str
    tokens: Count
    logprob: Figure | None = None
    ended: str


def of_model(
    store: Store, plan: Plan, ends: Mapping[str, StepEnd], model: str, most: int
) -> tuple[list[Sample], int, list[str]]:
    """The first `most` samples of the model that a step makes, in the order of the prompts, the
    number of further ones, and rejected reports."""
    found, more, refused = list[Sample](), 0, list[str]()
    for name, step in plan.steps.items():
        if step.do != "generate" or model not in step.inputs.get("models", {}):
            continue
        try:
            asked = step_runs.scoring(plan, name, ends)
            data = io.BytesIO(step_runs.file_of(store, asked, FILE) or b"")
            while line := data.readline(MAX_LINE + 1):
                if len(line) > MAX_LINE:
                    raise Refused(f"a line is longer than {MAX_LINE} bytes")
                sample = bounds.parse(Sample, line)
                if sample.model != model.partition("/")[2]:
                    continue
                if len(found) < most:
                    found.append(sample)
                else:
                    more += 1
        except step_runs.UNBELIEVED as error:
            refused.append(f"{name}, {FILE}: {step_runs.said(error)}")
    return found, more, refused
