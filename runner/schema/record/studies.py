"""What the arms of a study are, in a plan: an ablation or an IsoFLOP analysis."""

from runner.lib.base_record import Record

FEWEST_SEEDS = 3  # of a study; fewer are exploratory


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
