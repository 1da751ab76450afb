"""The records' schemas: every fact the lab writes down, and where it lies in the store.

A record is never edited, only added to. Whatever is shown anywhere (comments, checks, pages) is
drawn from these. Paths below `records/`:

    preregistrations/<repository>/<issue>/<n>.json    1 is the seal, the rest later edits
    plans/<repository>/<pull>/<n>.json                one for each head that was looked at
    approvals/<repository>/<pull>/<command>.json      what became of a `/run`
    answers/<repository>/<thread>/<command>.json      what became of another command
    executions/<execution>/<event>.json               execution, t1.claimed, …, result
    aliases/<experiment>/<alias>/<n>.json             what an alias means; the last one counts
    runs/<execution>.<arm>.s<seed>.json               one curve and its final figures
    replays/<execution>/<n>.json                      a stretch of a run was trained again
    wandb/<execution>.<arm>.s<seed>.json              the run has been sent to W&B
"""

import hashlib
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from engine.config.schema import EvalConfig, ModelConfig, TrainConfig
from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.bounds import Amount, Count, Figure, Seconds, Size, Speed, Words
from runner.lib.format import natural
from runner.schema import prediction_forms
from runner.store.store import Store, StoreError

MOST_ATTEMPTS = 3  # in a row that are lost and got no further

EVERYTHING = "*"  # of budgets: all kinds of hardware together

ARM_NAME = r"[a-z0-9_-]{1,40}"

R = TypeVar("R", bound="Record")
Isolated = Literal["", "bubblewrap", "trusted"]  # how own code is kept apart; "": it is not run


def since(default: Any) -> Any:
    """A field that older records do not have. It is left out where it says nothing, so that those
    keep their bytes and with them their digests and signatures."""
    return Field(default=default, exclude_if=lambda value: value == default)


class BadRecord(StoreError):
    """What lies there is no such record: it is of another form, or beyond `runner.lib.bounds`."""


# ── Questions and designs ────────────────────────────────────────────────────────────────────


class Person(Record):
    """Somebody on GitHub. The id stays when the login changes."""

    login: str
    id: int


_Arms = Annotated[tuple[str, ...], Field(max_length=prediction_forms.MOST_ARMS)]


class Prediction(Record):
    """One sentence that a machine can check: the estimate lies in the set `expect` names. The keys
    beside it make it one of the forms that `runner.schema.prediction_forms` lists."""

    metric: Literal["eval/bpb"]
    arm: str | None = since(None)
    versus: str | None = None
    order: _Arms = since(())
    exponent: _Arms = since(())
    smaller: _Arms = since(())
    axis: prediction_forms.Axis | None = since(None)
    expect: str  # "< b", "<= b", "> b", ">= b" or "a ± b"
    confidence: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _of_a_form(self) -> "Prediction":
        if found := prediction_forms.wrong(self):
            key, words = found
            raise PydanticCustomError("form", "{words}", {"key": key, "words": words})
        return self

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms that it speaks of."""
        return prediction_forms.arms(self)

    @property
    def sentence(self) -> str:
        """The prediction in words."""
        return "".join(text for _, text in prediction_forms.parts(self))


class Preregistration(Record):
    """The seal: what was predicted, by whom, before anything ran."""

    repository: int
    issue: int
    title: str
    hypothesis: str
    predictions: tuple[Prediction, ...]
    author: Person
    at: Instant  # when it was sealed, by GitHub's clock
    text_sha256: Sha256  # of the issue's title and body as they were read
    text: str | None = since(None)  # that: the title, a line break, the body

    @property
    def seal(self) -> str:
        """SHA-256 of the canonical form, author and time included."""
        return self.digest()


class Edit(Record):
    """An edit of a sealed issue. The seal stands; the edit is shown beside it."""

    at: Instant
    text_sha256: Sha256
    text: str | None = since(None)  # the title, a line break, the body


class Resources(Record):
    """What a run is to be trained on: a key of `runner.schema.devices.KINDS`, and how many of
    it."""

    kind: str
    count: int = Field(default=1, ge=1, le=65_536)


class Author(Record):
    """Who enters a speedrun."""

    name: str = Field(min_length=1, max_length=100)
    affiliation: str = Field(default="", max_length=100)
    url: str = Field(default="", pattern=r"^(https?://[^\s\"'<>]{1,200})?$")


class Speedrun(Record):
    """That the arms of an experiment compete, and where: see `runner.schema.tracks`."""

    track: str
    author: Author


class PlannedData(Record):
    """The text, by digest: figures on different digests are never compared."""

    source: str
    tokenizer: str
    train_tokens: int
    train_sha256: Sha256
    validation_tokens: int
    validation_sha256: Sha256


class PlannedArm(Record):
    """An arm with every default filled in, and what one of its runs costs."""

    model: ModelConfig
    train: TrainConfig
    parameters: int
    tokens: int
    forward_flops_per_token: int
    model_flops: int

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one batch."""
        return self.train.train_batch_size * self.model.seq_len


class PlannedStep(Record):
    """A step with every default filled in, and what its fingerprint was made of."""

    do: str  # a built-in's name, or module:function of the experiment's folder
    function: str  # what makes it: `regatta.train`, or module:function of the experiment's folder
    own: tuple[str, ...] = ()  # module:function of the experiment's folder that it calls
    config: dict[str, Any]
    inputs: dict[str, dict[str, Sha256]] = {}  # input: {step: its fingerprint}
    code: dict[str, Sha256]  # what it can reach, by file, see `runner.planning.code_digest`
    resources: Resources
    fingerprint: Sha256
    alias: str = ""  # a readable name that is the experiment's own, see `runner.execution.aliases`
    store: str  # where outputs of this function lie: `steps/<store>/<first 16 of fingerprint>`

    @property
    def needs(self) -> tuple[str, ...]:
        """The steps it takes its inputs from."""
        return tuple(dict.fromkeys(name for these in self.inputs.values() for name in these))

    @property
    def private(self) -> bool:
        """Whether the experiment's own code makes it, or makes what it reads."""
        return bool(self.own) or self.store != self.do


class PlannedRung(Record):
    """A rung of a ladder: a variant against its baseline, at one size. See `runner.spec.ladder`."""

    n: int  # from 1 on
    of: int
    baseline: str
    variant: str
    floor: float  # c and b of the law by which the gate counts
    exponent: float
    ladder: Sha256 | None = since(None)  # over all of its arms, where predictions speak of them
    below: dict[str, PlannedArm] = since({})  # the arms of the rungs before, likewise


class Cost(Record):
    """What all runs cost together: hardware FLOPs at 50 % and at 20 % utilisation. Of those whose
    model is the experiment's own only the tokens are known."""

    runs: int
    uncounted: int = 0  # how many of them have such a model
    tokens: int
    model_flops: int
    hardware_flops: tuple[float, float]
    seconds: tuple[float, float]
    price: tuple[float, float] | None  # in US dollars, of the kinds that have a price
    device: str
    device_seconds: dict[str, tuple[float, float]] = {}  # by kind


class Plan(Record):
    """An experiment resolved: what will run if this is approved, to the last default. It has arms
    and seeds, of which each pair is a run; or it has steps, and `arms` are what those train."""

    experiment: str  # the folder, relative to the repository
    title: str
    preregistration: int | None
    seal: Sha256 | None
    predictions: tuple[Prediction, ...]
    data: PlannedData | None  # what steps make has no digest yet
    eval: EvalConfig
    resources: Resources
    seeds: tuple[int, ...]
    arms: dict[str, PlannedArm]
    steps: dict[str, PlannedStep] = {}
    code_sha256: Sha256 | None = None  # of the experiment's own modules, comments and all
    compiled: bool = False  # from an `experiment.py`, which only its author has run
    ceiling_hours: float | None = since(None)  # device-hours at most, as its author says
    speedrun: Speedrun | None = since(None)
    rung: PlannedRung | None = since(None)  # of a ladder; `arms` are its two
    cost: Cost
    fingerprint: Sha256

    @field_validator("arms", "steps")
    @classmethod
    def _in_order(cls, found: dict[str, R]) -> dict[str, R]:
        """As people sort names, since a record's bytes keep no order of its author's."""
        return {name: found[name] for name in sorted(found, key=natural)}

    def runs(self) -> list[tuple[str, int]]:
        """Every (arm, seed), arm by arm; of steps, what they train."""
        if self.steps:
            return list(self.trained())
        return [(arm, seed) for arm in self.arms for seed in self.seeds]

    def trained(self) -> dict[tuple[str, int], str]:
        """{(arm, seed): the step that trains it}."""
        return {run: name for name in self.steps if (run := self.arm_of(name))}

    def arm_of(self, step: str) -> tuple[str, int] | None:
        """The (arm, seed) that this step trains; None if it trains nothing, or with own code. An
        arm is called as its point of the sweep is, without the seed, or as its step."""
        planned, (name, _, label) = self.steps[step], step.partition("/")
        if planned.do != "train" or planned.own:
            return None
        parts = [part for part in label.split(",") if not part.startswith("seed=")]
        return ",".join(parts) or name, int(planned.config["seed"])

    def own_code(self) -> list[str]:
        """The steps that run code of the experiment's own."""
        return [name for name, step in self.steps.items() if step.own]


def run_name(arm: str, seed: int) -> str:
    """`<arm>.s<seed>`: a run's name within its execution."""
    return f"{arm}.s{seed}"


# ── What a pull request is told, and what was approved ───────────────────────────────────────


class Standing(Record):
    """How a step stood when it was planned, and why it would be made."""

    state: Literal["cached", "new", "changed", "failed before", "being made"]
    why: str = ""


class Foretold(Record):
    """What the lab says that one run of an arm will score, before it is made."""

    axis: Literal["model_flops", "hardware_flops", "tokens", "parameters"]
    at: float  # on that axis
    loss: float  # eval/bpb
    low: float
    high: float
    level: float  # how often such an interval is to hold
    law: str  # in words
    rungs: int  # sizes that the law was fitted on
    runs: int
    reach: float  # how many times the largest of them
    words: tuple[str, ...] = ()  # what the interval does not cover


class Spread(Record):
    """The standard deviation between seeds, as the lab has seen it on runs of a kind."""

    deviation: float = Field(ge=0)
    arms: int  # that it was seen on
    freedom: int  # degrees of freedom, that is, how many seeds more than arms


class Climbed(Record):
    """The lab's own figure of a run on a lower rung of a ladder, which predictions may rest on."""

    execution: str
    arm: str
    seed: int
    bpb: float
    tokens_per_second: float | None = None  # as the job reported


class PlanRecord(Record):
    """What the lab found at one head of a pull request: a plan, or what is wrong."""

    repository: int
    pull: int
    n: int
    commit: str
    at: Instant
    plan: Plan | None
    problems: tuple[str, ...] = ()
    standings: dict[str, Standing] = {}  # of steps
    drifted: tuple[str, ...] = ()  # aliases that would mean something else, each with what to do
    source: "Source | None" = None
    base_ref: str = ""  # the branch that the pull request is to be merged into
    head_repository: int | None = None
    policy: str = ""  # commit of the default branch whose policy was read
    code: str = ""  # unguessable; `/run <code>` approves exactly this plan
    limit_seconds: float | None = None  # that its execution may take by the clock
    isolation: Isolated = ""  # of own code; "": it cannot run here
    forecasts: dict[str, Foretold] = since({})  # by arm
    no_forecast: dict[str, str] = since({})  # why of these arms there is none
    spread: Spread | None = since(None)  # of such runs, as it was known then
    other_design: str = since("")  # the execution that had sealed another one under its issue
    begun: str = since("")  # the execution that had begun its runs before their issue was sealed
    climbed: tuple[Climbed, ...] = since(())  # what the rungs before came to


class Narrowing(Record):
    """What an approval leaves out of its plan."""

    arms: tuple[str, ...] | None = None  # that remain; None: all
    seeds: tuple[int, ...] | None = None
    kind: str | None = None  # in old records; it changed nothing


class Approval(Record):
    """What became of one `/run`, `/retry` or `/reproduce`: it approved a plan, or was refused and
    why."""

    repository: int
    pull: int
    command: str  # `<comment>-<index>`, `r<review>-<index>` or `b<check run>-<identifier>`
    by: Person
    role: str
    at: Instant
    what: Literal["run", "retry", "reproduce"] = "run"
    approved: bool
    why: str = ""  # of a refusal
    reproduces: str = ""  # an execution, to be compared with
    plan: int | None = None  # the ordinal of the plan it is about
    commit: str | None = None
    fingerprint: Sha256 | None = None
    asked_at: Instant | None = None  # when the command was written, by GitHub's clock
    heard: str = "delivery"  # how its text came
    policy: str = ""  # commit of the default branch whose policy permitted it
    narrowing: Narrowing | None = None
    waits: str = ""  # for what, where it was permitted and one more person has to approve
    besides: tuple[str, ...] = ()  # ids of approvals that waited for this one
    posts: int | None = since(None)  # the plan that something else than its plan asks for

    @property
    def id(self) -> str:
        """The approval's id, from which its execution's id follows."""
        return f"{self.repository}/{self.command}"

    @property
    def execution(self) -> str:
        """The id of the execution that this approval starts."""
        return execution_id(self.id)


class Answered(Record):
    """What became of a command that approves nothing: it is decided once, and the rest follows."""

    command: str  # its key, as of an `Approval`
    what: Literal["cancel", "plan"]
    by: Person
    at: Instant
    yes: bool
    why: str = ""  # of a refusal
    executions: tuple[str, ...] = ()  # that it stops
    plan: int | None = None  # the ordinal of the plan it asked for


# ── Executions ───────────────────────────────────────────────────────────────────────────────

State = Literal["queued", "running", "evaluating", "done", "failed", "cancelled", "voided"]
FINAL_STATES = frozenset({"done", "failed", "cancelled", "voided"})


class Origin(Record):
    """Where an execution on GitHub comes from."""

    repository: int
    repository_name: str
    pull: int
    plan: int
    commit: str
    approved_by: Person
    approval: str


class Source(Record):
    """An experiment's folder as it was run."""

    tree: str  # Git's id of it: equal to `git rev-parse <commit>:<folder>` where nothing is changed
    commit: str = ""  # that was checked out, if the folder lay in a checkout
    changed: bool = False  # it is not as that commit has it


class Lab(Record):
    """The lab's own code when an execution began."""

    code_sha256: Sha256  # over paths and bytes of the Python files of its packages
    lock_sha256: Sha256 | None  # of requirements.lock
    commit: str = ""  # that was checked out, if it lay in a checkout
    changed: bool = False  # it was not as that commit has it


class Execution(Record):
    """What an approved plan starts once. `origin` is None for a local, unsigned run."""

    id: str
    at: Instant
    plan: Plan
    origin: Origin | None
    source: Source | None = None
    lab: Lab | None = None
    limit_seconds: float | None = None  # of an attempt by the clock, all together; None: none
    isolation: Isolated = ""  # of own code; "": there is none
    approvals: tuple[str, ...] = ()  # all that it rests on
    deviations: tuple[str, ...] = ()  # from the plan that was shown, in sentences
    reproduces: str = ""  # the execution that it is to be compared with
    forecasts: dict[str, Foretold] = since({})  # by arm, as its plan was shown with them
    climbed: tuple[Climbed, ...] = since(())  # what the rungs before came to, as in its plan


def execution_id(cause: str) -> str:
    """`x` and the first 16 hexadecimal digits of SHA-256 over what caused the execution."""
    return "x" + hashlib.sha256(cause.encode()).hexdigest()[:16]


class Claimed(Record):
    """An attempt is ours to make. Its nonce cannot be known before this is written."""

    at: Instant
    nonce: str
    spec_sha256: Sha256
    set_aside: tuple[str, ...] = ()  # folders that lay where only this attempt may write


class Started(Record):
    """The attempt's worker has begun."""

    at: Instant


class Checkpoint(Record):
    """One run's last committed parameters, as found on disk after training had ended."""

    path: str  # below the store's `work/`
    step: Count
    sha256: Sha256  # over sorted paths and bytes: this copy


class RunEnd(Record):
    """What training left of one run."""

    state: Literal["finished", "failed"]
    why: str = ""
    step: Count
    checkpoint: Checkpoint | None


class Examined(Record):
    """What asking a model of an experiment's own again has shown
    (`runner.worker.builtin.look_ahead_probe`)."""

    positions: Count  # that it was asked about with no more than what comes before
    largest: Size  # difference of a logit
    void: Words = ""  # why its score does not count
    forward_flops_per_token: Count | None = None  # of the trace that was scored, by its word
    uncounted: Words = ""  # why there is none


class Evaluated(Record):
    """The lab's own figures of one run, computed from its checkpoint."""

    bpb: Size
    loss: Size  # nats a token
    targets: Count
    params_sha256: Sha256
    parameters: Count | None = since(None)  # of a model of the experiment's own
    examined: Examined | None = since(None)  # likewise; None: it was not asked again


class StepEnd(Record):
    """What became of one step."""

    state: Literal["made", "cached", "failed"]
    why: str = ""
    by: str = ""  # the execution that made it
    host: str = ""
    made_at: Instant | None = None
    seconds: Seconds | None = None  # that it took
    folder: str = ""  # in the store
    output_sha256: Sha256 | None = None  # over paths, sizes and digests of its files
    receipt: dict[str, str] = {}


class Ended(Record):
    """An attempt is over and none of its processes is left."""

    at: Instant
    how: Literal["finished", "failed", "lost", "cancelled"]
    why: str = ""
    runs: dict[str, RunEnd] = {}  # of training
    evaluated: dict[str, Evaluated] = {}  # of evaluation
    steps: dict[str, StepEnd] = {}
    saved: dict[str, int] = since(
        {}
    )  # of a lost one: what the next goes on from, `runner.history.progress_left`
    refused: tuple[str, ...] = ()  # reports that were not believed, each with its reason
    receipt: dict[str, str] = {}  # versions, devices, threads, as the job names them


class Cancelled(Record):
    """Somebody asked the execution to stop."""

    at: Instant
    by: str
    command: str = ""  # which one, on GitHub


class Voided(Record):
    """The approval no longer held when it was to be used."""

    at: Instant
    why: str


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
    model_flops: Amount
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


# ── Reading and writing ──────────────────────────────────────────────────────────────────────


def write(store: Store, path: str, record: Record) -> bool:
    """Write `records/<path>.json` once. False if it was there already."""
    return store.create(f"records/{path}.json", record.canonical())


def read(store: Store, path: str, kind: type[R]) -> R | None:
    """The record at `records/<path>.json`, or None. Raises BadRecord for one of another form."""
    data = store.read(f"records/{path}.json")
    return None if data is None else parse(store, path, kind, data)


def require(store: Store, path: str, kind: type[R]) -> R:
    """Like `read`, for what must be there."""
    return parse(store, path, kind, store.require(f"records/{path}.json"))


def names(store: Store, folder: str) -> list[str]:
    """Names of the records (without `.json`) and folders in `records/<folder>`, sorted."""
    return [name.removesuffix(".json") for name in store.list(f"records/{folder}")]


def numbered(store: Store, folder: str, kind: type[R]) -> list[R]:
    """The records `1.json`, `2.json`, … of a folder, in the order of their numbers."""
    return [
        require(store, f"{folder}/{n}", kind)
        for n in sorted(int(name) for name in names(store, folder) if re.fullmatch(r"\d+", name))
    ]


def parse(store: Store, path: str, kind: type[R], data: bytes) -> R:
    """The record that `records/<path>.json` holds as `data`. Raises BadRecord."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = f"`{'.'.join(map(str, first['loc']))}`: " if first["loc"] else ""
        raise BadRecord(
            f"{store.root}/records/{path}.json is no record of the kind {kind.__name__}: {field}"
            f"{first['msg']}. Records are never edited; restore the file or move it aside."
        ) from error
