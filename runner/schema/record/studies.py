"""What the arms of a study are, in a plan (an ablation or an IsoFLOP analysis), and what a search
for settings found."""

from typing import Annotated

from pydantic import Field

from runner.lib.base_record import Record
from runner.lib.bounds import Count, Figure, Size, Whole, Word

FEWEST_SEEDS = 3  # of a study; fewer are exploratory
MAX_KEYS = 100
MAX_TRIALS = 10_000


class Trial(Record):
    """One training of a search, with one setting and one seed."""

    settings: Annotated[dict[Word, Whole | Figure], Field(max_length=MAX_KEYS)]
    seed: Count
    bpb: Size | None  # at its end; None: it diverged


class Tuned(Record):
    """What a search for the settings of an arm found: `tuned.json` of a `tune` step."""

    settings: Annotated[dict[Word, Whole | Figure], Field(max_length=MAX_KEYS)]  # keys of `train`
    why: Word  # it stopped
    noise: Size | None = None  # standard error of a setting's mean over the seeds of the trials
    trials: Annotated[tuple[Trial, ...], Field(max_length=MAX_TRIALS)] = ()


class AblatedPart(Record):
    """A part of a recipe, and for each size the arm that differs from the baseline in this part."""

    name: str
    held_out: bool  # the baseline has the part, and its arms do not; else the other way round
    arms: tuple[str, ...]


class PlannedAblation(Record):
    """An ablation: the sizes, and for each size the arm that is the baseline."""

    sizes: tuple[str, ...]
    baseline: tuple[str, ...]
    parts: tuple[AblatedPart, ...]


class IsoflopArm(Record):
    """An arm of an IsoFLOP analysis."""

    arm: str
    budget: float  # model FLOPs
    size: str


class PlannedIsoflop(Record):
    """An IsoFLOP analysis: its arms, and further budgets whose optimum is asked for."""

    arms: tuple[IsoflopArm, ...]
    ahead: tuple[float, ...] = ()
