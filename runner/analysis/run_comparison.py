"""Whether a repetition gave the same result: bit for bit, or within a tolerance. Pure.

Equal bits are guaranteed if the receipts are equal: devices, versions, threads. Otherwise scores
and training losses may differ by `TOLERANCE`. Other outputs of steps have no tolerance, so a
step whose inputs have other bits cannot be judged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from runner.schema.metrics import BPB
from runner.schema.record import PlannedStep, Run, StepEnd

TOLERANCE = 0.01  # difference in bits per byte and losses that another device or version may cause
MAX_NAMED = 3  # metrics in a sentence

How = Literal[
    "bit for bit", "within the tolerance", "follows its inputs", "differs", "not comparable"
]
GOOD = frozenset({"bit for bit", "within the tolerance"})


@dataclass(frozen=True)
class Comparison:
    """One run or step, before and now."""

    how: How
    words: str


def compare(before: Mapping[str, Run], now: Mapping[str, Run]) -> dict[str, Comparison]:
    """How each run of `before` compares this time, by the digest of its parameters and by its
    scores."""
    return {name: _compare(one, now.get(name)) for name, one in before.items()}


def _compare(before: Run, now: Run | None) -> Comparison:
    if not before.measured or now is None or not now.measured:
        words = "no score now" if before.measured else "no score before"
        return Comparison("not comparable", words)
    pairs = {
        metric: (score.value, now.measured.get(metric)) for metric, score in before.measured.items()
    }
    if gone := [metric for metric, (_, later) in pairs.items() if later is None]:
        return Comparison("not comparable", f"no {gone[0]} now")
    values = {metric: (then, later.value) for metric, (then, later) in pairs.items() if later}
    shown = {
        metric: f"{_named(metric)}{then:.4f} before, {later:.4f} now"
        for metric, (then, later) in values.items()
    }
    if apart := [shown[metric] for metric, of in values.items() if not _within(*of)]:
        words = f"{'; '.join(apart[:MAX_NAMED])}: more than {TOLERANCE:.0%} apart"
        return Comparison("differs", words)
    if before.evaluated == now.evaluated and all(then == later for then, later in values.values()):
        words = f"the same {', '.join([*values][:MAX_NAMED])}"
        if now.evaluated:
            words = f"{now.evaluated.bpb:.4f} bits per byte, same parameters"
        return Comparison("bit for bit", words)
    first = next(iter(shown.values()))
    return Comparison("within the tolerance", f"{first}: at most {TOLERANCE:.0%} apart")


def _named(metric: str) -> str:
    return "" if metric == BPB else f"{metric} "


def alike(before: Iterable[float], now: Iterable[float]) -> bool:
    """Whether scores, seed by seed, are within the tolerance of earlier ones."""
    return all(_within(*pair) for pair in zip(before, now, strict=True))


def _within(before: float, now: float) -> bool:
    return abs(now - before) <= TOLERANCE * abs(before)


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """How two receipts differ, so that equal bits are not guaranteed. For cores only their number
    counts; isolation does not count, because it changes no figure."""
    before, now = _counted(before), _counted(now)
    return [
        f"{name}: {before.get(name, 'none')} before, {now.get(name, 'none')} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _counted(receipt: Mapping[str, str]) -> dict[str, str]:
    cores = receipt.get("affinity", "")
    counted = {name: said for name, said in receipt.items() if name != "isolation"}
    return {**counted, "affinity": f"{len(cores.split(','))} cores"} if cores else counted


# ── Steps ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Made:
    """The result of one execution of a step."""

    end: StepEnd | None
    figures: Mapping[str, float] = field(default_factory=dict)  # its figures that have a tolerance


def compare_steps(
    steps: Mapping[str, PlannedStep], before: Mapping[str, Made], now: Mapping[str, Made]
) -> dict[str, Comparison]:
    """How each step compares this time. In `steps`, each comes after its inputs."""
    found: dict[str, Comparison] = {}
    for name, step in steps.items():
        inputs = [found[other].how for other in step.needs]
        same_bits = all(how == "bit for bit" for how in inputs)
        found[name] = _step(before[name], now[name], same_bits)
        excused = not same_bits and all(how in GOOD | {"follows its inputs"} for how in inputs)
        if found[name].how == "differs" and excused and not now[name].figures:
            words = "its inputs differ, and its output has no stated tolerance"
            found[name] = Comparison("follows its inputs", words)
    return found


def whole(found: Mapping[str, Comparison]) -> How:
    """The comparison of everything together."""
    hows = {one.how for one in found.values()}
    for worst in ("not comparable", "differs"):
        if worst in hows:
            return worst
    return "bit for bit" if hows <= {"bit for bit"} else "within the tolerance"


def _step(before: Made, now: Made, same_bits: bool) -> Comparison:
    one, other = before.end, now.end
    if not (one and one.output_sha256 and other and other.output_sha256):
        then = not (one and one.output_sha256)
        why = (one if then else other) or StepEnd(state="failed")
        words = f"it did not run {'before' if then else 'now'}"
        return Comparison("not comparable", f"{words}: {why.why}" if why.why else words)
    if one.output_sha256 == other.output_sha256:
        return Comparison("bit for bit", f"output {other.output_sha256[:16]}")
    if before.figures.keys() != now.figures.keys() or not now.figures:
        words = f"output {one.output_sha256[:16]} before, {other.output_sha256[:16]} now"
        return Comparison("differs", words)
    pairs = [(name, then, now.figures[name]) for name, then in before.figures.items()]
    words = "; ".join(f"{name} {then:.4f} before, {found:.4f} now" for name, then, found in pairs)
    if same_bits and not differing(one.receipt, other.receipt):
        return Comparison("differs", f"{words}: although devices and versions are the same")
    if all(_within(then, found) for _, then, found in pairs):
        return Comparison("within the tolerance", f"{words}: at most {TOLERANCE:.0%} apart")
    return Comparison("differs", f"{words}: more than {TOLERANCE:.0%} apart")
