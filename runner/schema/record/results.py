"""Results: verdicts, figures, runs with their curves, and later events."""

from typing import Any, Literal

from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.bounds import Amount, Count, Figure, Seconds, Size, Speed
from runner.schema.metrics import BPB, Measured, Score
from runner.schema.record.executions import Evaluated
from runner.schema.record.fields import since
from runner.schema.record.plans import Resources
from runner.schema.record.questions import Prediction
from runner.schema.record.studies import Tuned


class Verdict(Record):
    """The verdict on one prediction."""

    prediction: Prediction
    outcome: Literal["confirmed", "refuted", "inconclusive"]
    why: str  # one sentence with the figures
    n: int  # seeds that count
    estimate: float | None = None
    interval: tuple[float, float] | None = None  # 95 %
    standard_error: float | None = None
    beyond_two_se: bool | None = None  # Δ > 2·SE, the usual rule, for comparison


class Used(Record):
    """The use of one kind of device by an execution."""

    kind: str
    device_seconds: float
    price: float | None  # in US dollars, if the kind has a price


class Lost(Record):
    """What a step lost with the machines of its makers, see `runner.history.lost_work`."""

    step: str
    times: Count  # how often it lost its machines
    preempted: Count  # so many of these were preemptions
    steps: Count  # training steps that were done again
    seconds: Seconds  # of its devices
    price: Size | None  # in US dollars, if the kind has a price


class Shipped(Record):
    """What an entry consists of, in bytes: whoever wants its model has to copy so much."""

    weights: Amount  # of the trained parameters, as they are stored
    code: Amount = 0  # of its own modules
    lines: Amount = 0  # of them
    # Of that code and declaration: long literals, which hold numbers or text and no rules.
    tables: Amount = 0
    declared: Amount = since(0)  # of the configurations that its own code reads

    @property
    def size(self) -> int:
        """Everything together."""
        return self.weights + self.code + self.declared


class EnteredRun(Record):
    """A run that competes in a speedrun: the lab's figure, and its cost, counted and measured."""

    arm: str
    seed: int
    own: bool  # own code trained it
    own_model: bool  # its model is own code
    isolated: bool  # that code was isolated from everything that scores it
    evaluated: Evaluated | None
    why: str = ""  # why there is no figure
    void: str = ""  # why the figure does not count
    resources: Resources
    tokens: Amount
    parameters: Amount | None
    model_flops: Amount | None
    seconds: Seconds | None  # wall time of its training
    hardware_flops: Size | None  # seconds × devices × their peak
    price: Size | None = None  # in US dollars
    measured: str = ""  # notes on this measurement
    shipped: Shipped | None = since(None)
    tokenizer_sha256: Sha256 | None = since(None)  # with which it was scored; None: not known


class Result(Record):
    """How an execution ended. Written once; nothing of the execution changes afterwards."""

    at: Instant
    state: Literal["done", "failed", "cancelled", "voided"]
    why: str = ""
    verdicts: tuple[Verdict, ...] = ()
    refused: tuple[str, ...] = ()
    seconds: float | None = None  # from the first claim to the end
    used: tuple[Used, ...] = ()  # see `runner.execution.device_usage`
    entered: tuple[EnteredRun, ...] = since(())  # the runs that compete in a speedrun
    lost: tuple[Lost, ...] = since(())  # of the steps that lost their machines


class Ending(Result):
    """A result without its speedrun entries, for readers of all executions: an out-of-bounds figure
    in an old record then does not make it unreadable."""

    entered: tuple[Any, ...] = ()


# (step, bits per byte on the validation text, their standard error over windows)
Validated = tuple[Count, Figure, Size | None]


class Run(Record):
    """One arm with one seed: its final figures, and its curve as the job reported it."""

    execution: str
    arm: str
    seed: int
    state: Literal["finished", "failed", "unfinished"]
    why: str = ""
    steps: Count
    tokens: Amount
    model_flops: Amount | None  # None: unknown, for an own model
    evaluated: Evaluated | None
    checkpoint_sha256: Sha256 | None
    curve: tuple[tuple[Count, Figure], ...]  # (step, training loss in nats per token), a claim
    tokens_per_second: Speed | None  # a claim
    scores: Measured = since({})  # of every metric, by `measured.json`
    validation: tuple[Validated, ...] = since(())  # of its snapshots, and at last of its model
    skipped: Count = 0  # bad steps, which changed nothing; a claim
    tuned: Tuned | None = since(None)  # the search whose settings it was trained with

    @property
    def measured(self) -> Measured:
        """Every score. `eval/bpb` is the one of the evaluation, which older records have alone; if
        that was rejected, it has none."""
        found = {metric: score for metric, score in self.scores.items() if metric != BPB}
        if self.evaluated is None:
            return found
        known = self.scores.get(BPB)
        if known is None or known.value != self.evaluated.bpb:
            known = Score(value=self.evaluated.bpb)
        return {BPB: known, **found}


class Replayed(Record):
    """A part of a run was trained again (`runner.cli.replay`)."""

    at: Instant
    run: str  # its `train` step
    first: int  # the step of the checkpoint it started from; 0: from the beginning
    last: int
    how: Literal[
        "bit for bit", "within the tolerance", "follows its inputs", "differs", "not comparable"
    ]
    words: str


class Tracked(Record):
    """W&B shows an execution while it runs, and after."""

    at: Instant
    url: str


class Upload(Record):
    """A run was sent to W&B, or an exported model to the Hugging Face Hub."""

    at: Instant
    id: str  # at W&B; the commit at the Hub
