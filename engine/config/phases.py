"""Changes during a run: of its schedule, its data, or both, each from a step that is known before
the run starts. So the settings at step n are a function of n, and a resumed run continues exactly
as if it had not stopped."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
)
from pydantic_core import InitErrorDetails

from engine.config.fields import Config, Count, Span, refusal

SCHEDULE = ("learning_rate", "adam_learning_rate", "lr_schedule", "warmup", "decay")
MOST_PHASES = 16
MOST_PARTS = 32  # of a mixture

InputName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Weights = Annotated[
    dict[InputName, Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=MOST_PARTS)
]


class Phase(Config):
    """What a run changes after `at` finished steps. A phase that names a key of the schedule starts
    a new schedule, which lasts to the next such phase or to the end; its spans count these steps
    only. Keys that it does not name keep their values, except `warmup`, which is then 0. Data lasts
    until a phase names other data. Batch and seq_len cannot change."""

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
    warmup: Span | None = Field(default=None, description="steps, or fraction of its steps, rising")
    decay: Span | None = Field(default=None, description="wsd only: as warmup, at the end")
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
    for number, phase in enumerate(phases):
        if phase.at <= before:
            words = f"a phase at {phase.at} cannot follow one at {before}"
            wrong(number, "at", f"{words}; write them in order, one a step")
        elif phase.at >= steps:
            words = f"the run ends after {steps} steps"
            wrong(number, "at", f"{words}, so that a phase at {phase.at} would not begin")
        if not phase.schedule and not phase.changes_data:
            named = ", ".join((*SCHEDULE, "tokens", "weights"))
            wrong(number, "at", "this phase changes nothing; write one of " + named)
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
    now = {**before, "warmup": 0, **named}
    if before["adam_learning_rate"] == before["learning_rate"]:
        now["adam_learning_rate"] = named.get("adam_learning_rate")
    if now["lr_schedule"] != "wsd":
        now["decay"] = named.get("decay")
    return now
