"""What came out: verdicts, figures, runs with their curves, and what followed."""

from typing import Any, Literal

from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.bounds import Amount, Count, Figure, Seconds, Size, Speed
from runner.schema.record.executions import Evaluated
from runner.schema.record.fields import since
from runner.schema.record.plans import Resources
from runner.schema.record.questions import Prediction


class Verdict(Record):
    """How one prediction came out."""

    prediction: Prediction
    outcome: Literal["confirmed", "refuted", "inconclusive"]
    why: str  # one sentence with the figures
    n: int  # seeds that counted
    estimate: float | None = None
    interval: tuple[float, float] | None = None  # 95 %
    standard_error: float | None = None
    beyond_two_se: bool | None = None  # the field's Δ > 2·SE, for comparison


class Used(Record):
    """What an execution took of one kind of device."""

    kind: str
    device_seconds: float
    price: float | None  # in US dollars, where the kind has a price


class EnteredRun(Record):
    """A run that competes in a speedrun: the lab's figure, and what was counted and measured."""

    arm: str
    seed: int
    own: bool  # code of the experiment's own trained it
    own_model: bool  # and its model is the experiment's own
    isolated: bool  # that code ran apart from all that says what it came to
    evaluated: Evaluated | None
    why: str = ""  # there is no figure
    void: str = ""  # why the figure does not count
    resources: Resources
    tokens: Amount
    parameters: Amount | None
    model_flops: Amount | None
    seconds: Seconds | None  # of its training, by the clock
    hardware_flops: Size | None  # seconds × devices × their peak
    price: Size | None = None  # in US dollars
    measured: str = ""  # what to know of that


class Result(Record):
    """How an execution ended. Written once; nothing of the execution changes after it."""

    at: Instant
    state: Literal["done", "failed", "cancelled", "voided"]
    why: str = ""
    verdicts: tuple[Verdict, ...] = ()
    refused: tuple[str, ...] = ()
    seconds: float | None = None  # from the first claim to the end
    used: tuple[Used, ...] = ()  # see `runner.execution.device_usage`
    entered: tuple[EnteredRun, ...] = since(())  # what competes in a speedrun


class Ending(Result):
    """A result as who reads those of all executions needs it: without what competed, so that one
    with a figure beyond all bounds, as an older lab believed it, stops none of them."""

    entered: tuple[Any, ...] = ()


class Run(Record):
    """One arm with one seed: its final figures, and its curve as the job reported it."""

    execution: str
    arm: str
    seed: int
    state: Literal["finished", "failed", "unfinished"]
    why: str = ""
    steps: Count
    tokens: Amount
    model_flops: Amount | None  # None: of a model of the experiment's own
    evaluated: Evaluated | None
    checkpoint_sha256: Sha256 | None
    curve: tuple[tuple[Count, Figure], ...]  # (step, training loss in nats a token), a claim
    tokens_per_second: Speed | None  # a claim
    skipped: Count = 0  # steps that were bad and changed nothing, a claim


class Replayed(Record):
    """A stretch of a run was trained again (`runner.cli.replay`)."""

    at: Instant
    run: str  # its `train` step
    first: int  # the step of the checkpoint it was trained from; 0: from the beginning
    last: int
    how: Literal[
        "bit for bit", "within the tolerance", "follows its inputs", "differs", "not comparable"
    ]
    words: str


class Upload(Record):
    """A run has been sent to W&B."""

    at: Instant
    id: str  # at W&B
