"""Aliases: readable names of what a step makes, as `as: fineweb-2026-11` gives one. An alias is its
experiment's own. What it means is written down when an execution first begins with it, and no edit
changes that quietly: a plan in which it would mean something else is stopped until its author takes
the edit back, writes another alias, or says that it now means this.

`records/aliases/<experiment>/<alias>/<n>.json`, of which the highest number counts. An experiment
is named by its folder. Aliases are in no fingerprint.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from runner.lib.base_record import Instant, Record
from runner.schema import record, step_graph
from runner.schema.record import Plan, PlannedStep
from runner.store.store import Store


class Alias(Record):
    """What an alias means, and since when."""

    alias: str
    n: int
    step: str
    steps: dict[str, PlannedStep]  # this one and all that it was made of
    at: Instant
    execution: str = ""  # that began with it; empty where its author said so

    @property
    def fingerprint(self) -> str:
        """Of the step."""
        return self.steps[self.step].fingerprint


class Drift(NamedTuple):
    """An alias that would mean something else."""

    meant: Alias
    step: str  # that has the alias now
    why: tuple[tuple[str, str], ...]  # (step, what of it differs), the causes first


def drifted(meanings: Mapping[str, Alias], steps: Mapping[str, PlannedStep]) -> list[Drift]:
    """The aliases of `steps` that would mean something else than `meanings` has it, by alias. Pure:
    whoever is to begin an execution asks `known` first and does not begin while there are any."""
    found = []
    for name, step in steps.items():
        meant = meanings.get(step.alias)
        if step.alias and meant and meant.fingerprint != step.fingerprint:
            # Under its present name, should the step have been renamed.
            before = {name if one == meant.step else one: of for one, of in meant.steps.items()}
            why = step_graph.differences(before, _needed(name, steps))
            found.append(Drift(meant, name, tuple(why)))
    return sorted(found, key=lambda drift: drift.meant.alias)


def sentence(drift: Drift, folder: str) -> str:
    """What is wrong and what its author can do; `drift.why` says what differs."""
    alias, since = drift.meant.alias, f"{drift.meant.at:%Y-%m-%d %H:%M} UTC"
    by = f" ({drift.meant.execution})" if drift.meant.execution else ""
    return (
        f"The step `{drift.step}` would change what `{alias}` means. The alias has a fixed meaning "
        f"since {since}{by}. Revert the change, or write another alias at "
        f"`steps.{drift.step.partition('/')[0]}.as`, or confirm the new meaning: "
        f"`regatta alias {folder} {alias}`."
    )


def known(store: Store, plan: Plan) -> dict[str, Alias]:
    """What the aliases of a plan's steps mean, as far as they have a meaning."""
    found = {}
    for alias in (step.alias for step in plan.steps.values() if step.alias):
        if numbered := record.numbered(store, _folder(plan, alias), Alias):
            found[alias] = numbered[-1]
    return found


def settle(store: Store, plan: Plan, execution: str, at: Instant) -> None:
    """Give those of a plan's aliases a meaning that have none, when an execution begins. One that
    has another meaning keeps it. Safe to repeat."""
    meanings = known(store, plan)
    for name, step in plan.steps.items():
        if step.alias and step.alias not in meanings:
            _write(store, plan, _meaning(plan, name, 1, at, execution))


def decide(store: Store, plan: Plan, step: str, at: Instant) -> Alias:
    """Have the alias of this step mean what the plan makes of it: the author's word."""
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
    """A step and all that it is made of, each after its inputs."""
    needs, waiting = dict[str, tuple[str, ...]](), [name]
    while waiting:
        if (one := waiting.pop()) not in needs:
            needs[one] = steps[one].needs
            waiting += needs[one]
    return {one: steps[one] for one in step_graph.order(needs)}
