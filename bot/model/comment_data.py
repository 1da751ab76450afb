"""What the bot's comments say, for programs: JSON in a folded block at the end of a comment. Pure.

The forms grow: keys may be added, and none is removed or changes its meaning within a version. The
site has their JSON Schemas.
"""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from runner.schema.record import Prediction

LONG, SHORT = 300, 100  # the most characters of one text; SHORT where space is scarce
_ESCAPED = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&`"})


class Data(BaseModel):
    """The data of one comment."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: Literal[1] = 1


class ApprovalData(BaseModel):
    """What has to happen before the plan starts."""

    by: Literal["maintainer", "policy", "nobody"] = Field(
        description="maintainer: somebody comments `line`; policy: it starts by itself; nobody: it "
        "cannot start here"
    )
    line: str | None = Field(default=None, description="the comment that approves this plan")
    why: str = Field(default="", description="why the policy does not approve an agent's plan")
    agent: str | None = Field(default=None, description="the login of the agent that proposed it")
    sponsor: str | None = Field(default=None, description="who answers for the agent")


class ArmData(BaseModel):
    """An arm of a plan."""

    parameters: int | None = Field(description="null: unknown, of an own model")
    tokens: int = Field(description="of one run")
    model_flops: int | None = Field(description="of one run")


class CostData(BaseModel):
    """What the whole plan costs; two numbers are the values at 50 % and at 20 % utilisation."""

    runs: int
    tokens: int
    model_flops: int
    seconds: tuple[float, float]
    price: tuple[float, float] | None = Field(description="in US dollars, if the devices have one")


class PlanData(Data):
    """A plan: what would run at a commit, and what it costs."""

    kind: Literal["plan"] = "plan"
    plan: int = Field(description="its number on this pull request")
    commit: str
    fingerprint: str = Field(description="SHA-256 of everything that an approval approves")
    experiment: str = Field(description="the folder")
    title: str
    preregistration: int | None = Field(description="the number of the issue")
    predictions: list[Prediction]
    arms: dict[str, ArmData] = Field(description="as many as fit, see `complete`")
    seeds: list[int]
    steps: int
    devices: dict[str, int] = Field(description="the most that are held at a time, by kind")
    cost: CostData
    limit_seconds: float | None = Field(description="wall time after which the lab stops it")
    rung: tuple[int, int] | None = Field(description="of a ladder: which rung, of how many")
    own_code: bool
    approval: ApprovalData
    complete: bool = Field(description="whether nothing is left out for want of space")


class ProblemData(BaseModel):
    """One problem of a declaration."""

    file: str
    line: int | None
    field: str
    message: str = Field(description="what is wrong, and what to write instead")


class ProblemsData(Data):
    """Why a commit has no plan."""

    kind: Literal["problems"] = "problems"
    plan: int
    commit: str
    problems: list[ProblemData]
    complete: bool


class VerdictData(BaseModel):
    """The verdict on one prediction."""

    prediction: Prediction
    outcome: Literal["confirmed", "refuted", "inconclusive"]
    why: str
    estimate: float | None
    interval: tuple[float, float] | None = Field(description="95 %")
    seeds: int = Field(description="that count")


class ScoreData(BaseModel):
    """The lab's own scores of an arm by `eval/bpb`."""

    mean: float | None
    spread: float | None = Field(description="standard deviation over seeds")
    seeds: dict[str, float | None] = Field(description="the score of each; null: it has none")


class GateData(BaseModel):
    """The gate of a rung of a ladder."""

    rung: int
    of: int
    outcome: Literal["passed", "failed", "inconclusive"]
    speedup: tuple[float, float, float] | None = Field(description="estimate, and 90 % interval")


class ResultData(Data):
    """How an execution ended: verdicts and scores."""

    kind: Literal["result"] = "result"
    execution: str
    state: Literal["done", "failed", "cancelled", "voided"]
    why: str
    pull: int
    plan: int
    commit: str
    fingerprint: str
    approved_by: str
    reproduces: str | None = Field(description="the execution that it repeats")
    counts: bool | None = Field(
        description="whether it decides the predictions of its preregistration; null: it has none"
    )
    verdicts: list[VerdictData]
    scores: dict[str, ScoreData] = Field(description="by arm; as many as fit, see `complete`")
    gate: GateData | None
    complete: bool


class SealData(Data):
    """Sealed predictions."""

    kind: Literal["seal"] = "seal"
    issue: int
    seal: str = Field(description="SHA-256 of hypothesis, predictions, author and time")
    author: str
    at: str
    predictions: list[Prediction]


class RefusalData(Data):
    """A command that was refused, or an agent's plan that the policy refused."""

    kind: Literal["refusal"] = "refusal"
    what: str = Field(description="the command; `policy` where no command was given")
    by: str
    plan: int | None
    why: str = Field(description="the reason, and what to do")


KINDS: dict[str, type[Data]] = {
    "plan": PlanData,
    "problems": ProblemsData,
    "result": ResultData,
    "seal": SealData,
    "refusal": RefusalData,
}


def block(data: Data, longest: int = LONG) -> str:
    """The folded block. Everything outside of ASCII, and what could end the fence, begin a tag or a
    marker, is written as an escape of JSON, so no text can leave the block. Long texts are cut."""
    parts = data.model_dump(mode="json").items()
    lines = (f"{json.dumps(key)}: {json.dumps(_cut(value, longest))}" for key, value in parts)
    text = ",\n".join(lines).translate(_ESCAPED)
    head = "<details><summary>For programs (JSON)</summary>"
    return f"{head}\n\n```json\n{{\n{text}\n}}\n```\n\n</details>"


def _cut(value: Any, longest: int) -> Any:
    """The value with every long text in it cut."""
    if isinstance(value, str) and len(value) > longest:
        return value[: longest - 1] + "…"
    if isinstance(value, list):
        return [_cut(one, longest) for one in value]
    if isinstance(value, dict):
        return {_cut(key, longest): _cut(one, longest) for key, one in value.items()}
    return value


def read(body: str) -> list[dict[str, Any]]:
    """The data in a comment of the bot, as a program reads it."""
    found = []
    for part in body.split("```json\n")[1:]:
        try:
            value = json.loads(part.partition("\n```")[0])
        except ValueError:
            continue
        if isinstance(value, dict) and value.get("kind") in KINDS:
            found.append(value)
    return found
