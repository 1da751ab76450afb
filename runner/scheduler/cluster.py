"""cluster.yaml → Described: a cluster (real or not), its rules and its faults.

It is read like an experiment (`runner.spec.declaration`): every error names file, line, field and a
did-you-mean if there is one. `examples/cluster.yaml` shows every key.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from engine.config.schema import Config
from runner.lib import problems
from runner.lib.complaints import Complaints
from runner.lib.problems import BadExperiment, Said
from runner.scheduler.admission import priority_of
from runner.scheduler.queue_order import RANKS, Cluster, Policy, Pool
from runner.scheduler.queue_state import HOUR, Request
from runner.scheduler.simulate import Faults, Job, Submission
from runner.schema import lab_config
from runner.schema.devices import UTILISATION, Kind, listed
from runner.schema.record import MOST_ATTEMPTS, Plan, PlannedArm, Resources, run_name

MAX_DEVICES = 1_000_000
MAX_RUNS = 100_000

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
    price: Amount | None = None
    preemptions_per_device_hour: Annotated[float, Field(ge=0, le=3600)] = 0.0
    away_minutes: Amount = 0.0


class _Patience(Config):
    debugging: Hours = 1.0
    run: Hours = 24.0
    sweep: Hours = 168.0


class _Policy(Config):
    patience_hours: _Patience = _Patience()
    half_life_hours: Hours = 168.0
    shares: dict[str, Share] = Field(default_factory=dict)
    budgets_device_hours: dict[str, dict[str, Amount]] = Field(default_factory=dict)


class Synthetic(Config):
    """A synthetic load: experiments of one to sixty-four runs that arrive evenly over some days.

    Two in five are debugging (one run of some minutes), two in five have 1 to 6 runs, one in five
    is a sweep of 16 to 64. Person n submits in proportion to 1/n. Durations are log-normal, sizes
    powers of two, pools chosen in proportion to their devices: the shapes that logs of shared
    machines show (Feitelson, "Workload Modeling for Computer Systems Performance Evaluation",
    2015). A run takes 40 % to 100 % of its expected time.
    """

    runs: Annotated[int, Field(ge=0, le=MAX_RUNS)] = 0
    people: Annotated[int, Field(gt=0, le=10_000)] = 10
    days: Annotated[float, Field(gt=0, le=10_000)] = 1.0
    median_hours: Annotated[float, Field(gt=0, le=10_000)] = 2.0  # of a run that is not debugging
    largest: Annotated[float, Field(gt=0, le=1)] = 0.125  # maximum fraction of its pool for one run
    checkpoint_minutes: Annotated[float, Field(gt=0, le=100_000)] = 15.0


class _File(Config):
    pools: Annotated[dict[PoolName, _Pool], Field(min_length=1)]
    policy: _Policy = _Policy()
    synthetic: Synthetic = Synthetic()
    attempts: Annotated[int, Field(gt=0, le=10_000)] = MOST_ATTEMPTS
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


@dataclass(frozen=True)
class Described:
    """A cluster, its rules and its faults."""

    file: str
    cluster: Cluster
    policy: Policy
    faults: Faults
    prices: Mapping[str, float | None]  # US$ per device-hour, by pool
    synthetic: Synthetic


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
    return _described(whole, file, kinds)


def _described(whole: _File, file: str, kinds: Mapping[str, Kind]) -> Described:
    pools = whole.pools.items()
    return Described(
        file=file,
        cluster=Cluster(
            tuple(
                Pool(name, pool.kind, pool.count // pool.slice, pool.slice) for name, pool in pools
            )
        ),
        policy=_policy(whole.policy),
        faults=Faults(
            preemptions={name: pool.preemptions_per_device_hour for name, pool in pools},
            away={name: round(pool.away_minutes * 60) for name, pool in pools},
            attempts=whole.attempts,
            seed=whole.seed,
        ),
        prices={name: _price(pool, kinds[pool.kind]) for name, pool in pools},
        synthetic=whole.synthetic,
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


def _price(pool: _Pool, kind: Kind) -> float | None:
    if pool.price is not None:
        return pool.price
    taken_away = pool.preemptions_per_device_hour > 0 and kind.spot_price is not None
    return kind.spot_price if taken_away else kind.price


# ── What arrives ─────────────────────────────────────────────────────────────────────────────


def planned(plan: Plan, name: str, person: str, at: int, seed: int) -> Submission:
    """The runs of a plan: its arms with each seed, or what its steps train. They arrive together.
    Other steps are not counted, nor runs of an own model (`plan.cost.uncounted`), whose duration is
    unknown.

    Each run is expected to take its time at poor utilisation, and takes something between that and
    its time at good utilisation, depending on seed and name.
    """
    runs = dict(_runs(plan))
    times = {run: _seconds(plan, arm, resources) for run, (arm, resources) in runs.items()}
    longest = max((math.ceil(slow) for _, slow in times.values()), default=0)
    jobs = []
    for run, (arm, resources) in runs.items():
        train = arm.train
        chance = random.Random(f"{seed}/{name}.{run}")
        seconds = max(1, math.ceil(chance.uniform(*times[run])))
        apart = seconds * train.checkpoint_every / train.num_train_steps
        apart = min(apart, train.checkpoint_seconds or apart)
        request = Request(
            name=f"{name}.{run}",
            person=person,
            priority=priority_of(len(runs), longest),
            kind=resources.kind,
            count=resources.count,
            seconds=max(1, math.ceil(times[run][1])),
            submitted=at,
        )
        jobs.append(Job(request, seconds, checkpoint=max(1, math.ceil(apart))))
    return Submission(name, tuple(jobs))


def _runs(plan: Plan) -> Iterator[tuple[str, tuple[PlannedArm, Resources]]]:
    """Each run whose FLOPs are known: its arm and its devices."""
    trained = plan.trained()
    for arm, seed in plan.runs():
        step = plan.steps.get(trained.get((arm, seed), ""))
        if plan.arms[arm].model_flops is not None:
            on = step.resources if step else plan.resources
            yield run_name(arm, seed), (plan.arms[arm], on)


def _seconds(plan: Plan, arm: PlannedArm, on: Resources) -> tuple[float, float]:
    """The seconds of a run of this arm at good and at poor utilisation."""
    peak = plan.kinds[on.kind].peak_flops * on.count
    good, poor = ((arm.model_flops or 0) / use / peak for use in UTILISATION)
    return good, poor


def synthetic(load: Synthetic, cluster: Cluster, seed: int) -> Iterator[Submission]:
    """The load that `Synthetic` describes."""
    chance = random.Random(f"{seed}/synthetic")
    people = [f"person-{n + 1}" for n in range(load.people)]
    activity = [1 / (n + 1) for n in range(load.people)]
    pools, sizes = cluster.pools, [pool.devices for pool in cluster.pools]
    left, n = load.runs, 0
    while left:
        n += 1
        (person,), (pool,) = chance.choices(people, activity), chance.choices(pools, sizes)
        what = chance.choices(("debugging", "run", "sweep"), (2, 2, 1))[0]
        runs = {"debugging": 1, "run": chance.randint(1, 6), "sweep": chance.randint(16, 64)}[what]
        runs = min(runs, left)
        left -= runs
        doublings = int(math.log2(max(1, pool.slices * load.largest)))
        slices = 1 if what == "debugging" else 2 ** chance.randint(0, doublings)
        median = 300.0 if what == "debugging" else load.median_hours * HOUR
        seconds = max(60, math.ceil(chance.lognormvariate(math.log(median), 1.0)))
        at = int(chance.uniform(0, load.days * 24 * HOUR))
        jobs = []
        for number in range(runs):
            request = Request(
                name=f"synthetic/{n}.{number + 1}",
                person=person,
                priority=priority_of(runs, seconds),
                kind=pool.kind,
                count=slices * pool.size,
                seconds=seconds,
                submitted=at,
            )
            lasts = max(1, math.ceil(seconds * chance.uniform(0.4, 1.0)))
            jobs.append(Job(request, lasts, checkpoint=math.ceil(load.checkpoint_minutes * 60)))
        yield Submission(f"synthetic/{n}", tuple(jobs))
