"""cluster.yaml → Described: a cluster and its rules.

It is read like an experiment (`runner.spec.declaration`): every error names file, line, field and a
did-you-mean if there is one. `examples/cluster.yaml` shows every key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from engine.config.schema import Config
from runner.lib import problems
from runner.lib.complaints import Complaints
from runner.lib.problems import BadExperiment, Said
from runner.scheduler.queue_order import RANKS, Cluster, Policy, Pool
from runner.scheduler.queue_state import HOUR
from runner.schema import lab_config
from runner.schema.devices import Kind, listed

MAX_DEVICES = 1_000_000

PoolName = Annotated[str, StringConstraints(pattern=r"^[^\pC]{1,80}$")]  # printable
Hours = Annotated[float, Field(gt=0, le=100_000)]
Share = Annotated[float, Field(gt=0, le=1_000_000)]
Amount = Annotated[float, Field(ge=0, le=1e12)]


class BadCluster(BadExperiment):
    """A cluster cannot be read; `problems` has everything that was found."""


class _Pool(Config):
    kind: str
    count: Annotated[int, Field(gt=0, le=MAX_DEVICES)]
    slice: Annotated[int, Field(gt=0, le=MAX_DEVICES)] = 1


class _Patience(Config):
    debugging: Hours = 1.0
    run: Hours = 24.0
    sweep: Hours = 168.0


class _Policy(Config):
    patience_hours: _Patience = _Patience()
    half_life_hours: Hours = 168.0
    shares: dict[str, Share] = Field(default_factory=dict)
    budgets_device_hours: dict[str, dict[str, Amount]] = Field(default_factory=dict)


class _File(Config):
    pools: Annotated[dict[PoolName, _Pool], Field(min_length=1)]
    policy: _Policy = _Policy()


@dataclass(frozen=True)
class Described:
    """A cluster and its rules."""

    file: str
    cluster: Cluster
    policy: Policy


# Replaces missing and unreadable parts, so that reading can continue.
_POOL = {"kind": "cpu", "count": 1}
_INSTEAD = {**_POOL, "pools": {"?": _POOL}}


# ── Reading ──────────────────────────────────────────────────────────────────────────────────


def load(file: Path, kinds: Mapping[str, Kind]) -> Described:
    """Read the cluster in `file`, of a lab with these kinds of device. Raises BadCluster."""
    words = "there is no such file; a cluster is described in YAML: see examples/cluster.yaml"
    try:
        return parse(problems.text_of(file, words), str(file), kinds)
    except BadExperiment as error:
        raise BadCluster(list(error.problems)) from error


def parse(text: str, file: str, kinds: Mapping[str, Kind] | None = None) -> Described:
    """Read the text of a cluster.yaml, of a lab with these kinds of device (None: the defaults);
    errors name the file as `file`. Raises BadCluster with every problem, by line."""
    kinds = kinds or lab_config.defaults().devices
    example = "; examples/cluster.yaml shows how a cluster is described"
    try:
        document = problems.read(text, file, "`pools` and `policy`", example)
        complaints = Complaints(document)
        whole = complaints.whole(_File, _INSTEAD)
        if whole:
            complaints.say_all(_senseless_pools(whole, kinds))
            if not any(complaints.lost(("pools", name, "kind")) for name in whole.pools):
                complaints.say_all(_senseless_budgets(whole))
        complaints.end()
    except BadExperiment as error:
        raise BadCluster(list(error.problems)) from error
    if whole is None:
        raise AssertionError("what cannot be read is complained of")
    return _described(whole, file)


def _described(whole: _File, file: str) -> Described:
    pools = whole.pools.items()
    return Described(
        file=file,
        cluster=Cluster(
            tuple(
                Pool(name, pool.kind, pool.count // pool.slice, pool.slice) for name, pool in pools
            )
        ),
        policy=_policy(whole.policy),
    )


def _senseless_pools(whole: _File, kinds: Mapping[str, Kind]) -> Said:
    """Problems with well-formed pools."""
    for name, pool in whole.pools.items():
        if pool.kind not in kinds:
            words = f"no kind of device `{pool.kind}` is known, only {listed(kinds)}"
            yield ("pools", name, "kind"), words
            continue
        shapes = kinds[pool.kind].topologies
        if shapes and pool.slice not in shapes:
            sizes = ", ".join(map(str, shapes))
            words = f"{pool.kind} comes in slices of {sizes} devices, not of {pool.slice}"
            yield ("pools", name, "slice"), words
        elif pool.count % pool.slice:
            words = f"{pool.count} devices are no whole number of slices of {pool.slice}"
            yield ("pools", name, "count"), words


def _senseless_budgets(whole: _File) -> Said:
    kinds = {pool.kind for pool in whole.pools.values()}
    for person, budget in whole.policy.budgets_device_hours.items():
        for kind in sorted(set(budget) - kinds):
            words = f"no pool has devices of kind `{kind}`, only of {listed(sorted(kinds))}"
            yield ("policy", "budgets_device_hours", person, kind), words


def _policy(policy: _Policy) -> Policy:
    patience = policy.patience_hours
    return Policy(
        patience={of: round(getattr(patience, of) * HOUR) for of in RANKS},
        half_life=max(1, round(policy.half_life_hours * HOUR)),
        shares=policy.shares,
        budgets={
            (person, kind): int(hours * HOUR)
            for person, budget in policy.budgets_device_hours.items()
            for kind, hours in budget.items()
        },
    )
