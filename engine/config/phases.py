"""Changes during a run: of its schedule, its batch, its data, each from a step that is known before
the run starts. So the settings at step n are a function of n, and a resumed run continues exactly
as if it had not stopped."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
)
from pydantic_core import InitErrorDetails

from engine.config.fields import Config, Count, Span, refusal

SCHEDULE = (
    *("learning_rate", "adam_learning_rate", "lr_schedule"),
    *("min_lr_ratio", "warmup", "cycle", "decay"),
)
MOST_PHASES = 16
MOST_PARTS = 32  # of a mixture

InputName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Weights = Annotated[
    dict[InputName, Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=MOST_PARTS)
]


class Phase(Config):
    """What a run changes after `at` finished steps. A phase that names a key of the schedule starts
    a new schedule, which lasts to the next such phase or to the end; its spans count these steps
    only. Keys that it does not name keep their values, except `warmup`, which is then 0, and
    `cycle`, which ends. Data and batch last until a phase names others. seq_len cannot change."""

    at: Count = Field(
        description="finished steps after which it begins: with 1000, step 1001 is its first"
    )
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="the schedule's peak"
    )
    adam_learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="the peak for what Adam moves; learning_rate if the two were the same before",
    )
    lr_schedule: Literal["constant", "linear", "cosine", "wsd"] | None = Field(
        default=None, description="what follows the warm-up"
    )
    min_lr_ratio: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None, description="what it falls towards, as a fraction of the peak"
    )
    warmup: Span | None = Field(default=None, description="steps, or fraction of its steps, rising")
    cycle: Count | None = Field(
        default=None, description="wsd only: it falls at the end of every so many steps"
    )
    decay: Span | None = Field(default=None, description="wsd only: as warmup, at the end")
    train_batch_size: Count | None = Field(
        default=None,
        description="windows in a step from now on. Rates stay as they are; write them, too, if "
        "they are to follow the batch",
    )
    tokens: InputName | None = Field(
        default=None, description="the input that is trained on from now on"
    )
    weights: Weights | None = Field(
        default=None,
        description="of the parts of a mixture from now on; with `tokens` and no weights, its own",
    )

    @model_serializer(mode="wrap")
    def _what_it_names(self, all_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in all_of(self).items() if value is not None}

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def schedule(self) -> dict[str, Any]:
        """The schedule keys that this phase names."""
        values = {key: getattr(self, key) for key in SCHEDULE}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def changes_data(self) -> bool:
        return self.tokens is not None or self.weights is not None


class BatchSizes(NamedTuple):
    """How many windows each step of a run has. Step n is in the last turn i with before[i] < n."""

    before: tuple[int, ...]  # finished steps before each turn, from 0
    sizes: tuple[int, ...]

    @staticmethod
    def of(train: Mapping[str, Any]) -> "BatchSizes":
        """Those of a `train` section, validated or as a record has it."""
        turns = [(0, train["train_batch_size"])]
        for phase in train.get("phases", ()):
            named = phase if isinstance(phase, Mapping) else phase.model_dump()
            if size := named.get("train_batch_size"):
                turns.append((named["at"], size))
        return BatchSizes(*map(tuple, zip(*turns, strict=True)))

    def at(self, step: int) -> int:
        """The windows of a step, from 1."""
        return self.sizes[bisect_left(self.before, step) - 1]

    def until(self, steps: int) -> int:
        """The windows of the first so many steps together."""
        ends = (*self.before[1:], steps)
        turns = zip(self.before, ends, self.sizes, strict=True)
        return sum(size * max(min(end, steps) - begin, 0) for begin, end, size in turns)


def filled_in(
    phases: tuple[Phase, ...], base: Mapping[str, Any], schedule: Callable[[dict[str, Any]], Config]
) -> tuple[Phase, ...]:
    """The phases with all keys of their schedules. `base` is the run's first schedule. `schedule`
    builds a configuration from one schedule or raises ValidationError, as this function does."""
    problems: list[InitErrorDetails] = []

    def wrong(number: int, key: str, words: str) -> None:
        value = getattr(phases[number], key)
        problems.append(InitErrorDetails(type=refusal(words), loc=(number, key), input=value))

    before, steps = 0, base["num_train_steps"]
    parts = base.get("gradient_accumulation_steps", 1)
    for number, phase in enumerate(phases):
        if phase.at <= before:
            words = f"a phase at {phase.at} cannot follow one at {before}"
            wrong(number, "at", f"{words}; write them in order, one a step")
        elif phase.at >= steps:
            words = f"the run ends after {steps} steps"
            wrong(number, "at", f"{words}, so that a phase at {phase.at} would not begin")
        if not (phase.schedule or phase.changes_data or phase.train_batch_size):
            named = ", ".join((*SCHEDULE, "train_batch_size", "tokens", "weights"))
            wrong(number, "at", "this phase changes nothing; write one of " + named)
        if (phase.train_batch_size or parts) % parts:
            words = f"gradient_accumulation_steps {parts} does not divide it"
            wrong(number, "train_batch_size", f"{words}; make it a multiple")
        before = max(before, phase.at)
    if len(phases) > MOST_PHASES:
        wrong(MOST_PHASES, "at", f"a run has at most {MOST_PHASES} phases")
    if problems:
        raise ValidationError.from_exception_data("phases", problems)

    found, now = list(phases), {key: base[key] for key in SCHEDULE}
    turns = [number for number, phase in enumerate(phases) if phase.schedule]
    begins = [0, *(phases[number].at for number in turns)]
    for turn, (begin, end) in enumerate(pairwise([*begins, steps])):
        number = turns[max(turn - 1, 0)] if turns else 0  # the run's first schedule is no phase
        if turn:
            now = _after(now, phases[number].schedule)
        given = {"optimizer": base["optimizer"], "num_train_steps": end - begin, **now}
        try:
            checked = schedule({"train_batch_size": 1, **given})
        except ValidationError as error:
            for detail in error.errors():
                key = str(detail["loc"][0]) if turn else "at"
                wrong(number, key, f"of the steps {begin + 1} to {end}: {detail['msg']}")
            break
        now = {key: getattr(checked, key) for key in SCHEDULE}
        if turn:
            found[number] = phases[number].model_copy(update=now)
    if problems:
        raise ValidationError.from_exception_data("phases", problems)
    return tuple(found)


def _after(before: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule that follows `before` and changes what `named` names; None means the default."""
    now = {**before, "warmup": 0, "cycle": None, **named}
    if before["adam_learning_rate"] == before["learning_rate"]:
        now["adam_learning_rate"] = named.get("adam_learning_rate")
    if now["lr_schedule"] != "wsd":
        now["decay"] = named.get("decay")
    if now["lr_schedule"] == "constant":
        now["min_lr_ratio"] = named.get("min_lr_ratio")
    return now
