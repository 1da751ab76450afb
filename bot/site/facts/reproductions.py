"""How often the lab ran an arm again (`/reproduce`), and whether its scores were the same. Pure.

A re-run is not a row of its own: it says something about the row of what it reproduces.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.site.facts.entries import Entry
from runner.analysis import run_comparison
from runner.schema.record import run_name


@dataclass(frozen=True)
class Again:
    """The re-runs of one arm that could be compared."""

    same: int = 0  # bit for bit, or within the tolerance
    exact: int = 0  # of these, bit for bit
    differ: int = 0

    @property
    def words(self) -> str:
        """As a sentence."""
        exact = f", {self.exact} of them bit for bit" if self.exact else ""
        same = f"{self.same} × with the same scores{exact}" if self.same else ""
        differ = f"{self.differ} × with other scores" if self.differ else ""
        return f"run again {' and '.join(filter(None, (same, differ))) or 'never'}"


def originals(entries: Iterable[Entry]) -> dict[str, Entry]:
    """{re-run: the execution that it reproduces}, if that one has scores; of a re-run of a re-run,
    the first execution."""
    known = {entry.execution.id: entry for entry in entries}
    found = {}
    for id, entry in known.items():
        first, seen = known.get(entry.execution.reproduces), {id}
        while first and first.execution.id not in seen and first.execution.reproduces in known:
            seen.add(first.execution.id)
            first = known[first.execution.reproduces]
        if first and first.execution.id != id and first.has_figures:
            found[id] = first
    return found


def reproductions(
    entries: Iterable[Entry], first: Mapping[str, Entry]
) -> dict[str, dict[str, Again]]:
    """{execution: {arm: its re-runs}}, with `first` as `originals` finds it."""
    found: dict[str, dict[str, Again]] = defaultdict(dict)
    for entry in entries:
        before = first.get(entry.execution.id)
        if before is None or entry.state != "done":
            continue
        for arm, how in compared(before, entry).items():
            so_far = found[before.execution.id].get(arm, Again())
            same, exact = how in run_comparison.GOOD, how == "bit for bit"
            found[before.execution.id][arm] = Again(
                so_far.same + same, so_far.exact + exact, so_far.differ + (how == "differs")
            )
    return found


def compared(before: Entry, now: Entry) -> dict[str, run_comparison.How]:
    """How the runs of each arm of `now` compare with those of `before`."""
    then, later = ({run_name(x.arm, x.seed): x for x in one.runs} for one in (before, now))
    found: dict[str, dict[str, run_comparison.Comparison]] = defaultdict(dict)
    repeated = {name: run for name, run in then.items() if name in later}
    for name, comparison in run_comparison.compare(repeated, later).items():
        found[then[name].arm][name] = comparison
    return {arm: run_comparison.whole(of) for arm, of in found.items()}


def whole(before: Entry, now: Entry) -> run_comparison.How:
    """How a whole re-run compares."""
    hows = set(compared(before, now).values())
    order: tuple[run_comparison.How, ...] = ("differs", "within the tolerance", "bit for bit")
    return next((how for how in order if how in hows), "not comparable")
