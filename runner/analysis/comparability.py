"""Which figures may be compared. Figures on different text, or over another number of tokens, are
never compared, ranked or put on one curve. Pure."""

import hashlib
from dataclasses import dataclass

from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.spec import measured


@dataclass(frozen=True)
class Scored:
    """A number of tokens of one text."""

    source: str
    tokenizer: str
    validation_sha256: str  # of the text; for an output of a step, its fingerprint
    eval_tokens: int

    @property
    def text(self) -> tuple[str, int]:
        """The identity of the text and the number of tokens; equal for comparable figures."""
        return self.validation_sha256, self.eval_tokens

    @property
    def id(self) -> str:
        """The id of its board: a text and a number of tokens have one."""
        return f"{self.validation_sha256[:12]}-{self.eval_tokens}"


def measured_on(plan: record.Plan) -> dict[str, str]:
    """{metric: an identity of what it is measured on}, equal for comparable scores: the step that
    measures it, with its configuration and its inputs other than models. A metric that several
    steps measure differently is left out."""
    found: dict[str, set[str]] = {}
    for step in plan.steps.values():
        if measured.measures(step) and "models" in step.inputs:
            on = {key: sorted(of.values()) for key, of in step.inputs.items() if key != "models"}
            identity = hashlib.sha256(to_json([step.do, step.config, on])).hexdigest()
            models = step.inputs["models"]
            for metric in {x for one in models for x in measured.of_model(step, one, plan.steps)}:
                found.setdefault(metric, set()).add(identity)
    return {metric: of.pop() for metric, of in found.items() if len(of) == 1}


def scored_on(plan: record.Plan) -> Scored | None:
    """What the plan's figures are computed on; None if that is not one text."""
    if plan.data:
        data = plan.data
        return Scored(data.source, data.tokenizer, data.validation_sha256, plan.eval.tokens)
    found = {
        Scored(
            f"{plan.experiment.rpartition('/')[2]}, {name}",
            str(plan.steps[name].config.get("tokenizer", "its own")),
            fingerprint,
            int(step.config["tokens"]),
        )
        for step in plan.steps.values()
        if step.do == "evaluate"
        for name, fingerprint in step.inputs["tokens"].items()
    }
    return found.pop() if len(found) == 1 else None
