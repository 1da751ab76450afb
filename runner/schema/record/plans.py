"""An experiment with all defaults filled in: what will run, and what it costs."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from engine.config.schema import EvalConfig, ModelConfig, TrainConfig, snapshots
from runner.lib.base_record import Record, Sha256
from runner.lib.format import natural
from runner.schema import lab_config
from runner.schema.devices import Kind
from runner.schema.own_model import OwnModel
from runner.schema.record.fields import R, since
from runner.schema.record.questions import Prediction
from runner.schema.record.studies import PlannedAblation, PlannedIsoflop
from runner.schema.tracks import Track

EVERYTHING = "*"  # in budgets: all kinds of hardware together

AFRESH = "@"  # in the place of an output: separates it from the execution that owns it

ARM_NAME = r"[a-z0-9_-]{1,40}"  # as declared
_PART = rf"({ARM_NAME}|[a-z0-9_]{{1,40}}=[A-Za-z0-9_.+-]{{1,40}})"
ARM_OF_STEPS = rf"{_PART}(,{_PART}){{0,7}}"  # as `arm_named` makes it of points of sweeps


class Resources(Record):
    """The devices of a run: a kind of the lab's, and their number."""

    kind: str = Field(description="the kind of device, such as cpu or h100")
    count: int = Field(default=1, ge=1, le=65_536, description="how many of them, in all slices")
    slices: int = Field(
        default=1,
        ge=1,
        le=1_024,
        exclude_if=lambda slices: slices == 1,  # old records have no such key
        description="groups of hosts with a fast network inside, of `count` / `slices` devices "
        "each; between them only `data` is split",
    )
    min_slices: int | None = Field(
        default=None,
        ge=1,
        exclude_if=lambda least: least is None,  # likewise
        description="with how many of them a run may continue when others are lost: with the same "
        "batch, accumulated",
    )
    spot: bool = Field(
        default=False,
        exclude_if=lambda spot: not spot,  # old records have no such key
        description="devices that may be taken away: the plan counts their spot price",
    )


class Author(Record):
    """An author of a speedrun entry."""

    name: str = Field(min_length=1, max_length=100, description="the author's name")
    affiliation: str = Field(default="", max_length=100, description="where the author works")
    url: str = Field(
        default="",
        pattern=r"^(https?://[^\s\"'<>]{1,200})?$",
        description="a page about the author or the entry",
    )


class Speedrun(Record):
    """The track on which the arms of an experiment compete, see `runner.schema.tracks`."""

    track: str = Field(description="the track's name, such as small-cost")
    author: Author = Field(description="who enters")
    trials: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        default=None,
        exclude_if=lambda trials: trials is None,  # old records have no such key
        description="how many trainings came before this entry: what you tried to find it. The "
        "board shows it",
    )


class PlannedData(Record):
    """The text, by digest: figures on different digests are never compared. How many tokens a
    corpus has is known once it is tokenized; its digests are over its files, the rules by which
    they are read, and the split."""

    source: str  # of a corpus its name@version
    tokenizer: str
    train_tokens: int | None
    train_sha256: Sha256
    validation_tokens: int | None
    validation_sha256: Sha256


class PlannedArm(Record):
    """An arm with every default filled in, and the cost of one of its runs. The cost of an own
    model is not known in advance."""

    own: dict[str, str] = since({})  # {part: module:function of the experiment's folder}
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
        """Its model, if it is the lab's, whose cost is known."""
        return self.model if isinstance(self.model, ModelConfig) else None

    def tokens_until(self, steps: int) -> int:
        """Tokens of the first so many steps."""
        return self.train.batch_sizes.until(steps) * self.model.seq_len

    def model_flops_until(self, steps: int) -> int | None:
        """Model FLOPs of the first so many steps."""
        if self.model_flops is None:
            return None
        return self.tokens_until(steps) * self.model_flops // self.tokens


class PlannedStep(Record):
    """A step with every default filled in, and everything that its fingerprint covers."""

    do: str  # the name of a built-in, or module:function of the experiment's folder
    function: str  # its function: `regatta.train`, or module:function of the experiment's folder
    own: tuple[str, ...] = ()  # module:function of the experiment's folder that it calls
    config: dict[str, Any]
    inputs: dict[str, dict[str, Sha256]] = {}  # input: {step: its fingerprint}
    code: dict[str, Sha256]  # the reachable code, by file, see `runner.planning.code_digest`
    resources: Resources
    fingerprint: Sha256
    alias: str = ""  # a readable name within the experiment, see `runner.execution.aliases`
    turn: int = since(0)  # its position in the declaration
    store: str  # outputs of this function are in `steps/<store>/<first 16 of fingerprint>`

    @property
    def needs(self) -> tuple[str, ...]:
        """The steps that are its inputs."""
        return tuple(dict.fromkeys(name for these in self.inputs.values() for name in these))

    @property
    def private(self) -> bool:
        """Whether own code computes it or any of its inputs."""
        return bool(self.own) or self.store.partition(AFRESH)[0] != self.do

    def afresh(self, execution: str) -> "PlannedStep":
        """The same step with an output place of this execution alone, so that nothing is reused."""
        return self.model_copy(update={"store": f"{self.store}{AFRESH}{execution}"})

    @property
    def snapshots(self) -> range:
        """The steps of the run that it trains after which it keeps the parameters."""
        recipe = self.config["train"] if self.do == "train" else {}
        return snapshots(recipe.get("evaluate_every"), recipe.get("num_train_steps", 0))

    def run(self, name: str) -> tuple[str, int] | None:
        """The (arm, seed) that this step trains, given its `name`; None if it trains nothing."""
        return run_of(name, self.do, self.config)


def run_of(name: str, do: str, config: Mapping[str, Any]) -> tuple[str, int] | None:
    """The (arm, seed) that a step trains; None if it trains nothing."""
    return (arm_named(name), int(config["seed"])) if do == "train" else None


def arm_named(step: str) -> str:
    """The arm of a `train` step with this name: the name of its point of the sweep without the
    seed, or the step's name."""
    name, _, label = step.partition("/")
    parts = [part for part in label.split(",") if not part.startswith("seed=")]
    return ",".join(filter(None, parts)) or name


class PlannedRung(Record):
    """A rung of a ladder: a variant against its baseline at one size. See `runner.spec.ladder`."""

    n: int  # from 1
    of: int
    baseline: str
    variant: str
    floor: float  # c and b of the law that the gate uses
    exponent: float
    ladder: Sha256 | None = since(None)  # over all of its arms, if predictions are about them
    below: dict[str, PlannedArm] = since({})  # arms of earlier rungs, likewise


class Cost(Record):
    """The cost of all runs together: hardware FLOPs at 50 % and at 20 % utilisation. For own models
    only the tokens are known."""

    runs: int
    uncounted: int = 0  # how many runs have an own model
    tokens: int
    model_flops: int
    hardware_flops: tuple[float, float]
    seconds: tuple[float, float]
    price: tuple[float, float] | None  # in US dollars, for kinds that have a price
    device: str
    device_seconds: dict[str, tuple[float, float]] = {}  # by kind


class Plan(Record):
    """What will run if this is approved, with all defaults filled in: a graph of steps; `arms` are
    what these train. If the experiment was declared as arms and seeds, `data` is its text. Plans of
    an older lab have only arms and seeds and can no longer run."""

    experiment: str  # the folder, relative to the repository
    title: str
    preregistration: int | None
    seal: Sha256 | None
    predictions: tuple[Prediction, ...]
    data: PlannedData | None  # for arms and seeds; with own steps the digest is not known yet
    eval: EvalConfig
    resources: Resources
    seeds: tuple[int, ...]
    arms: dict[str, PlannedArm]
    steps: dict[str, PlannedStep] = {}
    code_sha256: Sha256 | None = None  # of the own modules, comments included
    compiled: bool = False  # from an `experiment.py`, which only its author has run
    ceiling_hours: float | None = since(None)  # maximum device-hours, as the author declares
    speedrun: Speedrun | None = since(None)
    rung: PlannedRung | None = since(None)  # of a ladder; `arms` are its two arms
    ablation: PlannedAblation | None = since(None)  # which of the arms are compared, and in what
    isoflop: PlannedIsoflop | None = since(None)  # the budget and the size of each arm
    # What the lab's files said when this was planned, about the kinds of device that it names and
    # the track that it enters. Older plans used what are now the package's defaults.
    devices: dict[str, Kind] = since({})
    track: Track | None = since(None)
    cost: Cost
    fingerprint: Sha256

    @field_validator("arms", "steps")
    @classmethod
    def _in_order(cls, found: dict[str, R]) -> dict[str, R]:
        """Sorted by natural order of names, because a record does not keep its author's order."""
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
        """Every (arm, seed), arm by arm."""
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

    @property
    def code_folder(self) -> str:
        """The folder of its own modules in the store."""
        return f"code/{self.code_sha256}"

    def own_code(self) -> list[str]:
        """The steps that run own code."""
        return [name for name, step in self.steps.items() if step.own]


def run_name(arm: str, seed: int) -> str:
    """`<arm>.s<seed>`: a run's name within its execution."""
    return f"{arm}.s{seed}"
