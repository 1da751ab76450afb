"""Document → Experiment: the declaration in one of two forms, checked against its schema.

One form lists steps. The other, arms and seeds, is a short form of it: each arm with each seed is a
point of one `train` step; a study (`runner.spec.studies`) is a short form of arms. Both forms know
their `steps`, where the file says what is inside a step (`place`), and which well-formed parts make
no sense (`senseless`).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
)

from engine.config.fields import refusal
from engine.config.schema import DataConfig, EvalConfig
from runner.lib.complaints import Complaints
from runner.lib.problems import Document, Said, near
from runner.lib.yaml_lines import Path
from runner.schema import devices
from runner.schema.devices import Kind
from runner.schema.lab_config import LabConfig
from runner.schema.record import Resources, Speedrun
from runner.spec import arms, ladder, tuning
from runner.spec.arms import MODEL, TRAIN, Arm, ArmName, Layer
from runner.spec.benchmarks import Benchmark
from runner.spec.ladder import Ladder
from runner.spec.model_steps import Generate
from runner.spec.step_types import INIT, SETTINGS, TRAINS
from runner.spec.steps import NO_POINT, Point, Seed, Step, StepName
from runner.spec.studies import Ablate, Isoflop
from runner.spec.tuning import Search

MAX_RUNS = 256

Title = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]


class Asked(Resources):
    """The requested devices, and the limit for all runs together."""

    ceiling_hours: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="the most device-hours that all of it may take"
    )


class _Either(BaseModel):
    """The keys of both forms."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    title: Title = Field(description="the question")
    preregistration: Annotated[
        Annotated[int, Field(ge=1, strict=True)] | None,
        WithJsonSchema({"type": "integer", "minimum": 1}),
    ] = Field(default=None, description="the number of the issue with the predictions")
    resources: Asked = Field(description="the devices of each training")
    speedrun: Speedrun | None = Field(default=None, description="the track that this enters")

    @field_validator("preregistration", mode="before")
    @classmethod
    def _is_a_number(cls, number: object) -> object:
        if number is None:
            raise refusal(
                "it is empty: YAML takes `#1` for a comment; write the issue's number alone, such "
                "as `1`, or leave the key out"
            )
        return number

    @property
    def devices(self) -> Resources:
        """The devices of steps that name no others."""
        asked = self.resources
        return Resources(**asked.model_dump(exclude={"ceiling_hours"}))

    def senseless(self, lab: LabConfig) -> Said:
        """Problems with declarations that are well-formed, in this lab."""
        known = lab.tracks
        if self.speedrun and (track := self.speedrun.track) not in known:
            words = f"there is no track `{track}`; there are {', '.join(known)}{near(track, known)}"
            yield ("speedrun", "track"), words
        if self.speedrun and self.speedrun.author.name == "your name":  # the starter's
            words = "`your name` stands for it; write the name that the board should show"
            yield ("speedrun", "author", "name"), words


class Declaration(_Either):
    """An experiment declared as steps."""

    data: ClassVar[None] = None
    eval: ClassVar[EvalConfig] = EvalConfig()
    seeds: ClassVar[tuple[int, ...]] = ()
    ladder: ClassVar[None] = None
    ablate: ClassVar[None] = None
    isoflop: ClassVar[None] = None
    tune: ClassVar[None] = None
    arms_at: ClassVar[Path] = ("steps",)  # where the arms are declared

    steps: Annotated[dict[StepName, Step], Field(min_length=1)] = Field(
        description="in place of data, model, train, seeds and arms: the graph itself"
    )

    def steps_in(self, _: Mapping[str, Kind]) -> Mapping[str, Step]:
        """Its steps, in a lab with these kinds of device."""
        return self.steps

    def senseless(self, lab: LabConfig) -> Said:
        yield from super().senseless(lab)
        for name, step in self.steps.items():
            if self.speedrun and step.do == "train" and INIT in step.inputs:
                words = "an entry trains from nothing, and this continues a model; take it out"
                yield ("steps", name, "inputs", INIT), words
        asked = self.devices
        if wrong := devices.misfit(lab.devices, asked, trains=False):
            yield ("resources", wrong[0]), wrong[1]

    def place(self, step: str, inside: Path = (), point: Point = NO_POINT) -> Path:
        """Where the file has the part `inside` of this step, at a point of its sweep."""
        if inside[:1] == ("config",):
            swept = self.steps[step].swept(point.values, inside[1:])
            return ("steps", step, *(inside if swept is None else ("sweep", *swept)))
        return ("steps", step, *inside)


class ShortForm(_Either, Arm):
    """An experiment declared as arms and seeds. Each arm completes the keys of the `train` step
    (`model`, `train`, `own`, `options`, `compute`)."""

    data: DataConfig = Field(description="the text and its tokenizer")
    model: dict[str, Any] = Field(description=MODEL)
    train: dict[str, Any] = Field(description=TRAIN)
    eval: EvalConfig = Field(default=EvalConfig(), description="what is scored")
    samples: Generate | None = Field(default=None, description="prompts that each model continues")
    benchmarks: Benchmark | None = Field(
        default=None, description="tasks that each model is scored on"
    )
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = Field(
        default=(0,), description="each arm is trained with each of them"
    )
    arms: Annotated[dict[ArmName, Arm], Field(min_length=1)] = Field(
        default={"main": Arm()},
        description="what is compared: each changes model, train, own, options or compute",
    )
    ladder: Ladder | None = Field(
        default=None, description="rungs of arms that are run one after the other"
    )
    ablate: Ablate | None = Field(
        default=None, description="in place of arms: what each part of a recipe pays"
    )
    isoflop: Isoflop | None = Field(
        default=None, description="in place of arms: the best size for a budget of compute"
    )

    tune: Search | None = Field(
        default=None, description="search for settings of each arm, before it runs with its seeds"
    )

    @cached_property
    def layers(self) -> dict[str, tuple[Layer, ...]]:
        """The arms, also those of a study, each with what it consists of."""
        if self.ablate:
            return self.ablate.layers(self.layer)
        if self.isoflop:
            return self.isoflop.layers(self.layer)
        return {name: (self.layer, Layer(("arms", name), arm)) for name, arm in self.arms.items()}

    @property
    def layer(self) -> Layer:
        """The settings that all arms share."""
        return Layer((), self)

    @property
    def arms_at(self) -> Path:
        """Where the arms are declared."""
        return ("ablate",) if self.ablate else ("isoflop",) if self.isoflop else ("arms",)

    def completed(self, arm: str) -> dict[str, dict[str, Any]]:
        """The configuration of an arm's runs, without their seed."""
        return arms.completed(self.layers[arm])

    def steps_in(self, kinds: Mapping[str, Kind]) -> Mapping[str, Step]:
        """The steps that arms and seeds are short for, in a lab with these kinds of device. Work
        beside training on slices is done on the cores of their hosts."""
        kind = self.resources.kind
        others = Resources(kind="cpu" if kind in kinds and kinds[kind].topologies else kind)
        models = {"models": "train", "tokens": "tokenize"}
        found, text = {}, {}
        if self.data.corpus is not None:
            text = {"text": "corpus"}
            found["corpus"] = Step(
                do="corpus", config={"corpus": self.data.corpus}, resources=others
            )
        sweep = [{"name": arm, **self.completed(arm)} for arm in self.layers]
        found["tokenize"] = Step(
            do="tokenize",
            inputs=text,
            config=self.data.model_dump(exclude={"corpus"}),
            resources=others,
        )
        tokens = {"tokens": "tokenize"}
        if self.tune:
            found["tune"] = Step(
                do="tune",
                inputs=tokens,
                config={"search": self.tune.model_dump(), "eval": self.eval.model_dump()},
                sweep=sweep,
                resources=self.devices,
            )
        found |= {
            "train": Step(
                do="train",
                inputs=tokens | ({SETTINGS: "tune"} if self.tune else {}),
                sweep=sweep,
                seeds=self.seeds,
                resources=self.devices,
            ),
            "evaluate": Step(
                do="evaluate",
                inputs=models,
                config=self.eval.model_dump(),
                resources=others,
            ),
        }
        for name, do in (("samples", "generate"), ("benchmarks", "benchmark")):
            if asked := getattr(self, name):
                config = asked.model_dump()
                found[name] = Step(do=do, inputs=models, config=config, resources=others)
        return found

    def place(self, step: str, inside: Path = (), point: Point = NO_POINT) -> Path:
        """Where the file has the part `inside` of this step, at a point of its sweep."""
        if inside and inside[0] != "config":  # the devices, the seeds
            return self.arms_at if inside[0] == "sweep" else inside
        if step == "tune" and inside[1:2] == ("search",):
            return ("tune", *inside[2:])
        if step not in TRAINS:
            section = {"corpus": "data", "tokenize": "data", "evaluate": "eval"}.get(step, step)
            return (section, *inside[1:])
        inside = inside[1:] or ("own",)
        return arms.place(self.layers, point.label.partition(",")[0], inside)

    def senseless(self, lab: LabConfig) -> Said:
        yield from super().senseless(lab)
        whole = {arm: self.completed(arm) for arm in self.layers}
        yield from self._of_study()
        if self.ladder:
            own = any(any(one["own"].values()) for one in whole.values())
            yield from ladder.problems(self.ladder, self.arms, len(self.seeds), own=own)
        if self.ladder and self.speedrun:
            words = "a ladder is many plans, and an entry is one; enter what it comes to by itself"
            yield ("speedrun",), words
        for arm, config in whole.items():
            phases = config["train"].get("phases")
            for number, phase in enumerate(phases if isinstance(phases, list) else ()):
                for key in ("tokens", "weights"):
                    if isinstance(phase, dict) and phase.get(key) is not None:
                        inside = ("config", "train", "phases", number, key)
                        words = "arms have one text; data can change where there are `steps`"
                        yield self.place("train", inside, Point(arm)), words

    def _of_study(self) -> Said:
        studies = {"ablate": self.ablate, "isoflop": self.isoflop}
        named = [key for key, study in studies.items() if study]
        for key in ("arms", "ladder", "speedrun", *named[1:]):
            if named and key in self.model_fields_set and getattr(self, key):
                words = f"the arms follow from `{named[0]}`; take this out, or declare it apart"
                yield (key,), words
        if self.tune:
            yield from tuning.problems(self.tune, self.seeds)
        if self.ablate:
            yield from self.ablate.problems()
        elif self.isoflop:
            yield from self.isoflop.problems(self.layer)


Experiment = ShortForm | Declaration
_SHORT_ONLY = ShortForm.model_fields.keys() - Declaration.model_fields.keys()


# Replaces missing and unreadable parts, so that reading can continue.
_INSTEAD: dict[str, Any] = {
    "title": "?",
    "data": {"source": "stdlib"},
    "source": "stdlib",
    "model": {},
    "train": {},
    "resources": {"kind": "cpu"},
    "kind": "cpu",
    "track": "",
    "author": {"name": "?"},
    "name": "?",
    "floor": 0.0,
    "exponent": 1.0,
    "rungs": [],
    "baseline": "",
    "variant": "",
    "do": "",
    "sizes": {"x": {}},
    "budgets": [1.0],
}


def checked(document: Document, complaints: Complaints) -> Experiment:
    """The experiment that a document declares, in its form, as far as it is readable. Adds problems
    to `complaints`. Raises BadExperiment if too little is left."""
    if "steps" in document.value:
        for key in sorted(_SHORT_ONLY & document.value.keys()):
            words = "goes with arms and seeds; where there are `steps`, it belongs into a step's"
            complaints.lose((key,), f"{words} config")
        found: Experiment | None = complaints.whole(Declaration, _INSTEAD)
    else:
        short = found = complaints.whole(ShortForm, _INSTEAD)
        if short and (runs := len(short.seeds) * len(short.layers)) > MAX_RUNS:
            words = (
                f"{runs} runs are more than the {MAX_RUNS} that one experiment may have; "
                "take some out"
            )
            complaints.say(("seeds",) if len(short.seeds) > 1 else short.arms_at, words)
            found = None  # it is not expanded
    if found is None:
        complaints.end()
        raise AssertionError("what cannot be read is complained of")
    return found
