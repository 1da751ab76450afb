"""`tune:` of an experiment, and the step `tune`: a search for the settings of an arm, with an equal
budget of trials for each arm. `runner.lib.search` says how it goes.

    tune:
      trials: 24
      seeds: [100, 101]
      times: {learning_rate: [0.25, 0.5, 1, 2, 4]}
      values: {weight_decay: [0.0, 0.1, 0.2]}
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from engine.config.phases import SCHEDULE
from engine.config.schema import Config, TrainConfig, refusal
from runner.lib.problems import Said, near
from runner.lib.search import Space
from runner.lib.yaml_lines import Path
from runner.schema.record import arm_named
from runner.spec.steps import Seed

# The keys of `train` that change neither the size of a run nor its length.
TUNABLE = (
    *("learning_rate", "adam_learning_rate", "weight_decay", "momentum", "beta1", "beta2"),
    *("epsilon", "max_grad_norm", "z_loss_weight", "ema_decay", "warmup", "decay"),
)
DIGITS = 10  # significant digits of a multiple
FEWEST_SEEDS = 2  # of trials: one has no noise
ON_ONE = "trials train on one device so far; write `count: 1`"
MAX_TRIALS = 10_000
MAX_SEEDS = 100
MAX_VALUES = 32  # of a key: a grid of all keys still has a number that fits into 64 bits
TUNED = "tuned.json"  # the output of the step

Value = Annotated[int | float, Field(ge=-1e30, le=1e30)]
Grid = dict[str, Annotated[list[Value], Field(max_length=MAX_VALUES)]]


class Search(Config):
    """A search for the settings of each arm."""

    search: Literal["coordinate", "random"] = Field(
        default="coordinate",
        description="coordinate: one key after the other goes to a neighbouring value, as long as "
        "that is better by more than the noise. random: points of the grid, drawn by chance",
    )
    trials: Annotated[int, Field(gt=0, le=MAX_TRIALS)] = Field(
        description="the most trainings of one arm, each with one seed"
    )
    seeds: tuple[Seed, ...] = Field(
        min_length=1,
        max_length=MAX_SEEDS,
        strict=False,
        description="each setting is tried with each of them; others than those of the arms",
    )
    values: Grid = Field(
        default={}, description="keys of train with the values to try, the arm's own among them"
    )
    times: Grid = Field(
        default={}, description="the same as multiples of the arm's own value, 1 among them"
    )

    @field_validator("seeds")
    @classmethod
    def _noise_is_known(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < FEWEST_SEEDS:
            raise refusal("one seed does not show the noise; write two different ones at least")
        return seeds

    @field_validator("values", "times")
    @classmethod
    def _can_be_tuned(cls, grid: Grid, info: ValidationInfo) -> Grid:
        for key, values in grid.items():
            if key not in TUNABLE:
                words = f"`{key}` cannot be tuned; there are {', '.join(TUNABLE)}"
                raise refusal(words + near(key, TUNABLE))
            if key in info.data.get("values", {}):
                raise refusal(f"`{key}` is in `values` and in `times`; take one of them out")
            if len(set(values)) < len(values) or len(values) < 2:
                raise refusal(f"`{key}` needs two different values at least")
        return grid

    @field_validator("times")
    @classmethod
    def _something_is(cls, grid: Grid, info: ValidationInfo) -> Grid:
        values = info.data.get("values", {})
        if "values" in info.data and not grid and not values:
            words = "there is nothing to tune; write `times: {example}`"
            raise refusal(words, example="{learning_rate: [0.5, 1, 2]}")
        return grid

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are tuned, in order."""
        return (*self.times, *self.values)

    def space(self, train: Mapping[str, Any]) -> Space:
        """What is searched for an arm with this `train`, which has every default. Raises
        ValueError, with a sentence, where its own value is not among those to try."""
        grid: dict[str, list[float]] = {}
        for key in self.keys:
            own = train[key]
            if own is None:
                raise ValueError(f"`{key}` has no value here; write one into `train`")
            if key in self.times:
                if 1 not in self.times[key]:
                    raise ValueError(f"the multiples of `{key}` lack 1, the arm's own; add it")
                if own == 0:
                    raise ValueError(f"`{key}` is 0 here, as any multiple of it is; write `values`")
                grid[key] = sorted(_multiple(own, one) for one in self.times[key])
                if len(set(grid[key])) < len(grid[key]):
                    raise ValueError(f"two multiples of `{key}` {own} are the same number of steps")
            elif own in self.values[key]:
                grid[key] = sorted(self.values[key])
            else:
                words = f"the arm's own `{key}` is {own}, which is not among the values; add it"
                raise ValueError(words)
        return Space(
            how=self.search,
            grid=grid,
            start=tuple(values.index(train[key]) for key, values in grid.items()),
            seeds=self.seeds,
            trials=self.trials,
        )

    def misfit(self, train: TrainConfig) -> str:
        """Why an arm with this `train` cannot be tuned so; empty if it can."""
        known = train.model_dump(mode="json")
        try:
            space = self.space(known)
        except ValueError as error:
            return str(error)
        if any(phase.schedule for phase in train.phases):
            for key in self.keys:
                if key in SCHEDULE:
                    return f"`{key}` is tuned, and a phase begins another schedule; remove one"
        for key, values in space.grid.items():
            for value in values:
                try:
                    TrainConfig.model_validate(with_settings(known, {key: value}))
                except ValidationError as error:
                    return f"`{key}: {value:g}` cannot be: {error.errors()[0]['msg']}"
        if self.trials < 2 * len(self.seeds):
            return (
                f"{self.trials} trials are too few to compare two settings over "
                f"{len(self.seeds)} seeds; write {space.one_round} or more"
            )
        return ""


def with_settings(train: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A `train` section with tuned settings. A rate of Adam that is the learning rate stays so."""
    one_rate = train.get("adam_learning_rate") == train.get("learning_rate")
    follows = {}
    if one_rate and "learning_rate" in settings:
        follows = {"adam_learning_rate": settings["learning_rate"]}
    return {**train, **follows, **settings}


def _multiple(own: float, one: float) -> float:
    """A multiple of an arm's own value; of whole steps, whole steps."""
    if one == 1:
        return own
    return round(own * one) if isinstance(own, int) else float(f"{own * one:.{DIGITS}g}")


def of_arm(node: str, tuned: tuple[str, ...]) -> tuple[tuple[str, ...], list[tuple[Path, str]]]:
    """Of the nodes of a `tune` step the one that a `train` node takes: that of the same arm, or the
    only one; and what is wrong if there is none."""
    arm = arm_named(node)
    found = [one for one in tuned if len(tuned) == 1 or arm_named(one) == arm]
    if found or not tuned:
        return tuple(found[:1]), []
    words = f"no point of it is called `{arm}`; give both sweeps the same names"
    return (), [(("inputs", "settings"), words)]


def problems(search: Search, seeds: tuple[int, ...]) -> Said:
    """Problems of `tune` in an experiment with these seeds."""
    if both := sorted(set(search.seeds) & set(seeds)):
        words = f"the seed {both[0]} is also one of the arms', which would be chosen by their own "
        yield ("tune", "seeds"), f"{words}result; write other ones, such as 100"
