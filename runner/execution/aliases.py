"""Aliases: readable names for outputs of steps, such as `as: fineweb-2026-11`. An alias belongs to
its experiment. Its meaning is recorded when an execution with it first starts, and an edit cannot
change it silently: a plan in which it would mean something else is stopped until the author reverts
the edit, chooses another alias, or confirms the new meaning.

`records/aliases/<experiment>/<alias>/<n>.json`; the highest number counts. The experiment is
identified by its folder. Fingerprints do not cover aliases.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from runner.lib.base_record import Instant, Record
from runner.schema import record, step_graph
from runner.schema.record import Plan, PlannedStep
from runner.store.store import Store


class Alias(Record):
    """The meaning of an alias, and since when."""

    alias: str
    n: int
    step: str
    steps: dict[str, PlannedStep]  # this step and all that it depends on
    at: Instant
    execution: str = ""  # the first one with it; empty if the author has confirmed it

    @property
    def fingerprint(self) -> str:
        """The step's fingerprint."""
        return self.steps[self.step].fingerprint


class Drift(NamedTuple):
    """An alias that would change its meaning."""

    meant: Alias
    step: str  # the step that has the alias now
    why: tuple[tuple[str, str], ...]  # (step, how it differs), causes first


def drifted(meanings: Mapping[str, Alias], steps: Mapping[str, PlannedStep]) -> list[Drift]:
    """The aliases of `steps` that would mean something else than in `meanings`, by alias. Pure.
    Before an execution starts, `known` gives the meanings, and any drift stops it."""
    found = []
    for name, step in steps.items():
        meant = meanings.get(step.alias)
        if step.alias and meant and meant.fingerprint != step.fingerprint:
            # By its present name, if the step was renamed.
            before = {name if one == meant.step else one: of for one, of in meant.steps.items()}
            why = step_graph.differences(before, _needed(name, steps))
            found.append(Drift(meant, name, tuple(why)))
    return sorted(found, key=lambda drift: drift.meant.alias)


def sentence(drift: Drift, folder: str) -> str:
    """The problem and what the author can do; `drift.why` says what differs."""
    alias, since = drift.meant.alias, f"{drift.meant.at:%Y-%m-%d %H:%M} UTC"
    by = f" ({drift.meant.execution})" if drift.meant.execution else ""
    return (
        f"The step `{drift.step}` would change what `{alias}` means. The alias has a fixed meaning "
        f"since {since}{by}. Revert the change, or write another alias at "
        f"`steps.{drift.step.partition('/')[0]}.as`, or confirm the new meaning: "
        f"`regatta alias {folder} {alias}`."
    )


def known(store: Store, plan: Plan) -> dict[str, Alias]:
    """The recorded meanings of the aliases in a plan."""
    found = {}
    for alias in (step.alias for step in plan.steps.values() if step.alias):
        if numbered := record.numbered(store, _folder(plan, alias), Alias):
            found[alias] = numbered[-1]
    return found


def settle(store: Store, plan: Plan, execution: str, at: Instant) -> None:
    """Record the meaning of a plan's aliases that have none, when an execution starts. Others keep
    theirs. Safe to repeat."""
    meanings = known(store, plan)
    for name, step in plan.steps.items():
        if step.alias and step.alias not in meanings:
            _write(store, plan, _meaning(plan, name, 1, at, execution))


def decide(store: Store, plan: Plan, step: str, at: Instant) -> Alias:
    """Record, for the author, that this step's alias now means what the plan makes of it."""
    while True:
        meant = known(store, plan).get(plan.steps[step].alias)
        if meant and meant.fingerprint == plan.steps[step].fingerprint:
            return meant
        _write(store, plan, _meaning(plan, step, meant.n + 1 if meant else 1, at))


def _meaning(plan: Plan, step: str, n: int, at: Instant, execution: str = "") -> Alias:
    alias, needed = plan.steps[step].alias, _needed(step, plan.steps)
    return Alias(alias=alias, n=n, step=step, steps=needed, at=at, execution=execution)


def _write(store: Store, plan: Plan, alias: Alias) -> None:
    record.write(store, f"{_folder(plan, alias.alias)}/{alias.n}", alias)


def _folder(plan: Plan, alias: str) -> str:
    return f"aliases/{Path(plan.experiment).resolve().name}/{alias}"


def _needed(name: str, steps: Mapping[str, PlannedStep]) -> dict[str, PlannedStep]:
    """A step and everything that it depends on, each after its inputs."""
    needs, waiting = dict[str, tuple[str, ...]](), [name]
    while waiting:
        if (one := waiting.pop()) not in needs:
            needs[one] = steps[one].needs
            waiting += needs[one]
    return {one: steps[one] for one in step_graph.order(needs)}
