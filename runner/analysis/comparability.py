"""What figures are figures of. Figures on different text, or over another number of tokens, are
never compared, ranked or put on one curve. Pure."""

from dataclasses import dataclass

from runner.schema import record


@dataclass(frozen=True)
class Scored:
    """So many tokens of one text."""

    source: str
    tokenizer: str
    validation_sha256: str  # of the text; of what steps made, the fingerprint
    eval_tokens: int

    @property
    def text(self) -> tuple[str, int]:
        """What tells figures that may be compared, whatever they are called."""
        return self.validation_sha256, self.eval_tokens


def scored_on(plan: record.Plan) -> Scored | None:
    """What the plan's figures are figures of; None where that is not one thing."""
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
