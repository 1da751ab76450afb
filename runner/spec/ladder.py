"""`ladder:` of an experiment: rungs of growing size, each a variant against its baseline. Each rung
has a plan of its own, and its gate decides whether the next rung's plan is posted. Pure.

    ladder:
      floor: 0.6          # c and b of L = a·C^(−b) + c, which converts a loss to compute
      exponent: 0.1
      rungs:
        - {baseline: small, variant: small-new}
        - {baseline: large, variant: large-new}

Under a preregistration, a prediction may be about arms of several rungs. Each rung's plan then has
the arms below it, and its execution has their results; the prediction is decided on the rung with
the last of its arms.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import Field

from runner.lib.base_record import Record
from runner.lib.canonical_json import to_json
from runner.lib.problems import Said, near
from runner.schema.record import PlannedArm, PlannedRung

FEWEST_SEEDS = 2  # that a gate needs to estimate its noise


class Rung(Record):
    """Two arms at one size."""

    baseline: str = Field(description="the arm that the variant is compared with")
    variant: str = Field(description="the arm that is to be better")


class Ladder(Record):
    """The rungs, and the law that their gates use."""

    floor: Annotated[float, Field(ge=0)] = Field(description="c of the law L = a·C^(−b) + c")
    exponent: Annotated[float, Field(gt=0, le=2)] = Field(description="b of the same law")
    rungs: Annotated[tuple[Rung, ...], Field(max_length=20)] = Field(
        description="pairs of arms, from small to large"
    )

    def planned(self, n: int, arms: Mapping[str, PlannedArm] | None = None) -> PlannedRung:
        """The rung with this number, from 1. With the `arms` of all rungs (under a
        preregistration), it also has the digest of its ladder and the arms below it."""
        rung = self.rungs[n - 1]
        below = {name for one in self.rungs[: n - 1] for name in (one.baseline, one.variant)}
        whole = {name: arm.model_dump(mode="json") for name, arm in (arms or {}).items()}
        said = self.model_dump(mode="json") | {"arms": whole}
        return PlannedRung(
            n=n,
            of=len(self.rungs),
            baseline=rung.baseline,
            variant=rung.variant,
            floor=self.floor,
            exponent=self.exponent,
            ladder=hashlib.sha256(to_json(said)).hexdigest() if arms else None,
            below={name: arms[name] for name in sorted(below)} if arms else {},
        )


def problems(ladder: Ladder, arms: Collection[str], seeds: int, *, own: bool) -> Said:
    """Problems of a ladder over these arms."""
    if own:
        yield (
            ("ladder",),
            "arms with own code cannot be on a ladder, as nobody measures their speed; take it out",
        )
    if seeds < FEWEST_SEEDS:
        yield (
            ("seeds",),
            "a gate needs two seeds at least, to know its noise; write `seeds: [0, 1]`",
        )
    if len(ladder.rungs) < 2:
        yield ("ladder", "rungs"), "a ladder has two rungs at least; add one"
    seen: set[str] = set()
    for n, rung in enumerate(ladder.rungs):
        for key, name in (("baseline", rung.baseline), ("variant", rung.variant)):
            place = ("ladder", "rungs", n, key)
            if name not in arms:
                yield place, f"there is no arm `{name[:60]}`{near(name, arms) or '; declare it'}"
            elif name in seen:
                yield (
                    place,
                    f"the arm `{name}` is on the ladder already; each arm runs once; name another",
                )
            seen.add(name)
    for name in arms:
        if name not in seen and "" not in seen:  # "" is an arm of an unreadable rung
            yield ("arms", name), "is on no rung of the ladder, and would never run; add a rung"


def unlike(ladder: Ladder, arms: Mapping[str, PlannedArm]) -> Said:
    """Rungs whose arms cannot be compared, or that do not grow."""
    before = 0
    for n, rung in enumerate(ladder.rungs):
        if not arms.keys() >= {rung.baseline, rung.variant}:
            continue  # an unknown arm is already reported
        baseline, variant = arms[rung.baseline], arms[rung.variant]
        if baseline.tokens != variant.tokens:
            words = (
                f"`{rung.baseline}` trains on {baseline.tokens:,} tokens and `{rung.variant}` on "
                f"{variant.tokens:,}; a gate compares arms of equally many; make them so"
            )
            yield ("ladder", "rungs", n), words
        if (flops := baseline.model_flops or 0) <= before:
            words = f"`{rung.baseline}` is not larger than the rung before it; order them by size"
            yield ("ladder", "rungs", n), words
        before = flops
