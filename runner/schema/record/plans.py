"""An experiment resolved to the last default: what will run, and what it costs."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from engine.config.schema import EvalConfig, ModelConfig, TrainConfig
from runner.lib.base_record import Record, Sha256
from runner.lib.format import natural
from runner.schema import lab_config
from runner.schema.devices import Kind
from runner.schema.own_model import OwnModel
from runner.schema.record.fields import R, since
from runner.schema.record.questions import Prediction
from runner.schema.tracks import Track

EVERYTHING = "*"  # of budgets: all kinds of hardware together

AFRESH = "@"  # between a place for outputs and the execution that has it for itself

ARM_NAME = r"[a-z0-9_-]{1,40}"


class Resources(Record):
    """What a run is to be trained on: a kind of device of the lab's, and how many of it."""

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
    """An arm with every default filled in, and what one of its runs costs. What a model of the
    experiment's own costs is not known beforehand."""

    own: dict[str, str] = since({})  # {its part: module:function of the experiment's folder}
    model: ModelConfig | OwnModel
    train: TrainConfig
    parameters: int | None
    tokens: int
    forward_flops_per_token: int | None
    model_flops: int | None

    @field_validator("model", mode="before")
    @classmethod
    def _whose(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict):
            return value
        kind = OwnModel if "model" in info.data.get("own", {}) else ModelConfig
        return kind.model_validate(value)

    @property
    def labs(self) -> ModelConfig | None:
        """Its model, if that is the lab's, whose costs are known."""
        return self.model if isinstance(self.model, ModelConfig) else None

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one batch."""
        return self.train.train_batch_size * self.model.seq_len

    def model_flops_of(self, steps: int) -> int | None:
        """Model FLOPs of so many steps."""
        if self.model_flops is None:
            return None
        return steps * self.model_flops // self.train.num_train_steps


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
    turn: int = since(0)  # its place in the order in which its author declared the steps
    store: str  # where outputs of this function lie: `steps/<store>/<first 16 of fingerprint>`

    @property
    def needs(self) -> tuple[str, ...]:
        """The steps it takes its inputs from."""
        return tuple(dict.fromkeys(name for these in self.inputs.values() for name in these))

    @property
    def private(self) -> bool:
        """Whether the experiment's own code makes it, or makes what it reads."""
        return bool(self.own) or self.store.partition(AFRESH)[0] != self.do

    def afresh(self, execution: str) -> "PlannedStep":
        """The same, made in a place of this execution's, wherever it was made before."""
        return self.model_copy(update={"store": f"{self.store}{AFRESH}{execution}"})

    def run(self, name: str) -> tuple[str, int] | None:
        """The (arm, seed) that it trains as the step of this `name`; None if it trains nothing."""
        return run_of(name, self.do, self.config)


def run_of(name: str, do: str, config: Mapping[str, Any]) -> tuple[str, int] | None:
    """The (arm, seed) that a step trains; None if it trains nothing."""
    return (arm_named(name), int(config["seed"])) if do == "train" else None


def arm_named(step: str) -> str:
    """The arm that a `train` step of this name is one of: called as its point of the sweep is,
    without the seed, or as its step."""
    name, _, label = step.partition("/")
    parts = [part for part in label.split(",") if not part.startswith("seed=")]
    return ",".join(filter(None, parts)) or name


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
    """An experiment resolved: what will run if this is approved, to the last default. It is a graph
    of steps, and `arms` are what these train. One that was declared as arms and seeds names its
    text in `data`. Plans of an older lab have arms and seeds alone, and can no longer be run."""

    experiment: str  # the folder, relative to the repository
    title: str
    preregistration: int | None
    seal: Sha256 | None
    predictions: tuple[Prediction, ...]
    data: PlannedData | None  # of arms and seeds; what other steps make has no digest yet
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
    # What the lab's files said when this was planned: of the kinds of device that it names, and of
    # the track that it enters. Older plans went by what is now the package's default.
    devices: dict[str, Kind] = since({})
    track: Track | None = since(None)
    cost: Cost
    fingerprint: Sha256

    @field_validator("arms", "steps")
    @classmethod
    def _in_order(cls, found: dict[str, R]) -> dict[str, R]:
        """As people sort names, since a record's bytes keep no order of its author's."""
        return {name: found[name] for name in sorted(found, key=natural)}

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kinds of device that it was planned by, by name."""
        return self.devices or lab_config.defaults().devices

    @property
    def enters(self) -> Track | None:
        """The track that it enters, as it was when it was planned; None where there is none."""
        if self.track or self.speedrun is None:
            return self.track
        return lab_config.defaults().tracks.get(self.speedrun.track)

    def runs(self) -> list[tuple[str, int]]:
        """Every (arm, seed), arm by arm; of steps, what they train."""
        if self.steps:
            return list(self.trained())
        return [(arm, seed) for arm in self.arms for seed in self.seeds]

    def trained(self) -> dict[tuple[str, int], str]:
        """{(arm, seed): the step that trains it}."""
        return {run: name for name in self.steps if (run := self.arm_of(name))}

    def arm_of(self, step: str) -> tuple[str, int] | None:
        """The (arm, seed) that this step trains; None if it trains nothing. Plans of an older lab
        have no arms of own code."""
        run = self.steps[step].run(step)
        return run if run and run[0] in self.arms else None

    def own_code(self) -> list[str]:
        """The steps that run code of the experiment's own."""
        return [name for name, step in self.steps.items() if step.own]


def run_name(arm: str, seed: int) -> str:
    """`<arm>.s<seed>`: a run's name within its execution."""
    return f"{arm}.s{seed}"
