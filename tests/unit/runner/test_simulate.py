"""The simulator: what holds whatever happens, some stories, and its figures."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.cli import simulate_chart
from runner.scheduler import simulate
from runner.scheduler.queue_order import Cluster, Decision, Policy, Pool, forecast, schedule
from runner.scheduler.queue_state import HOUR, WEEK, Priority, Queue, Request
from runner.scheduler.simulate import Fate, Faults, Job, Submission, summarise
from tests.unit.runner.test_schedule import request

NEVER = 10_000  # attempts: more than any run here needs


def job(
    name: str,
    seconds: int = HOUR,
    expected: int | None = None,
    checkpoint: int = 600,
    person: str = "ada",
    priority: Priority = "run",
    count: int = 1,
    submitted: int = 0,
) -> Job:
    wanted = request(name, person, priority, count, expected or seconds, submitted)
    return Job(wanted, seconds, checkpoint)


def alone(*jobs: Job) -> list[Submission]:
    """Each job as an experiment of its own."""
    return [Submission(each.request.name, (each,)) for each in jobs]


# ── Whatever happens ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Play:
    """What is simulated."""

    submissions: list[Submission]
    cluster: Cluster
    policy: Policy
    faults: Faults

    def __call__(self) -> dict[str, Fate]:
        return simulate.simulate(self.submissions, self.cluster, self.policy, self.faults)


@st.composite
def plays(draw: st.DrawFn, gentle: bool = False) -> Play:
    """A small cluster under a load. `gentle`: no slice goes away, and no run takes longer than is
    expected of it."""
    pools = tuple(
        Pool(f"p{n}", draw(st.sampled_from(["h100", "v5p"])), draw(st.integers(1, 6)), size)
        for n, size in enumerate(draw(st.lists(st.sampled_from([1, 4]), min_size=1, max_size=3)))
    )
    kinds = sorted({pool.kind for pool in pools})
    submissions, people = [], ["ada", "bob", "cyd"]
    for n in range(draw(st.integers(1, 14))):
        person, kind = draw(st.sampled_from(people)), draw(st.sampled_from(kinds))
        count, submitted = draw(st.integers(1, 26)), draw(st.integers(0, 5000))
        priority = draw(st.sampled_from(["debugging", "run", "sweep"]))
        jobs = []
        for m in range(draw(st.integers(1, 4))):
            expected = draw(st.integers(1, 3000))
            seconds = draw(st.integers(1, expected if gentle else 4000))
            wanted = Request(f"e{n}.{m}", person, priority, kind, count, expected, submitted)
            jobs.append(Job(wanted, seconds, draw(st.integers(1, 300))))
        submissions.append(Submission(f"e{n}", tuple(jobs)))
    patience = {"debugging": 500, "run": 2000, "sweep": 6000}
    budgets = draw(
        st.dictionaries(
            st.tuples(st.sampled_from(people), st.sampled_from(kinds)), st.integers(0, 80_000)
        )
    )
    names = [pool.name for pool in pools]
    rates = st.dictionaries(st.sampled_from(names), st.sampled_from([0.1, 0.5, 2.0]))
    away = st.dictionaries(st.sampled_from(names), st.integers(0, 2000))
    return Play(
        submissions,
        Cluster(pools),
        Policy(
            patience, draw(st.integers(60, WEEK)), {"ada": 2.0}, budgets, draw(st.integers(0, 9))
        ),
        Faults(
            draw(rates), {} if gentle else draw(away), attempts=NEVER, seed=draw(st.integers(0, 99))
        ),
    )


@settings(deadline=None)
@given(plays())
def test_no_device_is_used_twice_nor_while_it_is_away(play: Play) -> None:
    taken: dict[str, list[tuple[int, int]]] = {pool.name: [] for pool in play.cluster.pools}
    for fate in play().values():
        for spell in fate.spells:
            assert spell.slices == fate.devices // _size(play.cluster, spell.pool)
            taken[spell.pool] += [(spell.start, spell.slices), (spell.end, -spell.slices)]
            if spell.how == "preempted":
                back = spell.end + play.faults.away.get(spell.pool, 0)
                taken[spell.pool] += [(spell.end, 1), (back, -1)]
    for pool in play.cluster.pools:
        changes = (change for _, change in sorted(taken[pool.name]))
        assert all(held <= pool.slices for held in accumulate(changes))


def _size(cluster: Cluster, name: str) -> int:
    return next(pool.size for pool in cluster.pools if pool.name == name)


@settings(deadline=None)
@given(plays())
def test_no_budget_is_exceeded(play: Play) -> None:
    """Neither by what was used nor, at any look, by that and what is set aside."""
    looks: list[tuple[Queue, int]] = []

    def watched(queue: Queue, cluster: Cluster, policy: Policy, now: int) -> Decision:
        decision = schedule(queue, cluster, policy, now)
        for account, limit in policy.budgets.items():
            more = sum(
                start.entry.reserved - queue.waiting[start.entry.name].reserved
                for start in decision.starts
                if start.entry.account == account
            )
            assert queue.use(account).committed + more <= limit
        looks.append((queue, now))
        return decision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "schedule", watched)
        fates = play()
    assert looks
    for (person, kind), limit in play.policy.budgets.items():
        mine = [
            fate
            for fate in fates.values()
            if (fate.request.person, fate.request.kind) == (person, kind)
        ]
        assert sum(fate.device_seconds() for fate in mine) <= limit


@settings(deadline=None)
@given(plays())
def test_everything_that_fits_comes_to_an_end(play: Play) -> None:
    """What is approved finishes, unless it takes longer than it said or its budget is too small
    for what it lost."""
    for fate in play().values():
        bound = (fate.request.person, fate.request.kind) in play.policy.budgets
        if fate.state == "failed":
            assert bound
            assert fate.spells[-1].how == "spent"
        elif fate.state == "held":
            assert bound
            assert "lacks" in fate.why
            assert fate.spells[-1].how == "preempted"
        elif fate.state == "refused":
            assert not fate.spells
            assert bound or "the cluster has none" in fate.why or "the largest pool" in fate.why
        else:
            assert fate.state == "finished"


@settings(deadline=None)
@given(plays(gentle=True))
def test_no_run_waits_long_after_its_date(play: Play) -> None:
    """From its date on, a run waits at most for those of an earlier date, one longest run each,
    and one more: whatever else arrives meanwhile."""
    fates = play()
    dates = {
        name: (play.policy.patience[fate.request.priority] + fate.request.submitted, name)
        for name, fate in fates.items()
    }
    for name, fate in fates.items():
        if fate.started is None or fate.request.submitted == fate.started:
            continue
        date = dates[name][0]
        kind = fate.request.kind
        mine = [other for other in fates.values() if other.request.kind == kind]
        longest = max(other.request.seconds for other in mine)
        before = sum(
            date <= spell.start < fate.started
            for other in mine
            for spell in other.spells
            if dates[other.request.name] < dates[name]
        )
        assert fate.started <= date + longest * (1 + before)


@settings(deadline=None)
@given(plays())
def test_a_preempted_run_loses_at_most_one_checkpoint_interval(play: Play) -> None:
    jobs = {each.request.name: each for one in play.submissions for each in one.jobs}
    for name, fate in play().items():
        assert all(0 <= spell.lost < jobs[name].checkpoint for spell in fate.spells)
        trained = sum(spell.end - spell.start - spell.lost for spell in fate.spells)
        assert trained == fate.progress
        if fate.state == "finished":
            assert trained == jobs[name].seconds
            assert fate.spells[-1].lost == 0


@settings(deadline=None)
@given(plays(), st.randoms(use_true_random=False))
def test_the_same_input_has_the_same_trace_in_any_order(play: Play, chance: object) -> None:
    other = list(play.submissions)
    chance.shuffle(other)  # type: ignore[attr-defined]
    assert play() == Play(other, play.cluster, play.policy, play.faults)()


@settings(deadline=None)
@given(plays(gentle=True))
def test_a_forecast_comes_true_where_nothing_comes_between(play: Play) -> None:
    """Everybody is there from the start, takes as long as expected, and nothing is preempted."""
    queue, jobs = Queue(), []
    for each in (each for one in play.submissions for each in one.jobs):
        now = Request(**{**_fields(each.request), "submitted": 0})
        jobs.append(Job(now, each.request.seconds, 1))
    undisturbed = Play(alone(*jobs), play.cluster, Policy(), Faults())
    fates = undisturbed()
    for each in jobs:
        if fates[each.request.name].state != "refused":
            (entry,) = simulate.admit([each.request], queue, play.cluster, Policy())
            queue.add(entry)
    foreseen = forecast(queue, play.cluster, Policy(), 0)
    assert {name: place.start for name, place in foreseen.items()} == {
        name: fate.started for name, fate in fates.items() if fate.state != "refused"
    }


def _fields(wanted: Request) -> dict[str, object]:
    return {name: getattr(wanted, name) for name in Request.__dataclass_fields__}


# ── Stories ──────────────────────────────────────────────────────────────────────────────────

ONE = Cluster((Pool("nodes", "h100", 4),))


def test_a_stream_of_debugging_holds_a_wide_sweep_up_until_its_date_only() -> None:
    stream = [
        job(f"d{n}", 900, person="bob", priority="debugging", submitted=n * 225)
        for n in range(2000)  # as much as four devices can do
    ]
    wide = job("wide", HOUR, person="ada", priority="sweep", count=4, submitted=1)
    policy = Policy(patience={"debugging": HOUR, "run": 2 * HOUR, "sweep": 24 * HOUR})
    fates = simulate.simulate(alone(wide, *stream), ONE, policy, Faults())
    assert 24 * HOUR <= fates["wide"].started - 1 <= 24 * HOUR + 900  # type: ignore[operator]
    assert all(fate.state == "finished" for fate in fates.values())


def test_a_sweep_does_not_hold_debugging_up() -> None:
    sweep = [job(f"s{n}", 600, priority="sweep") for n in range(100)]
    debugging = job("d", 60, person="bob", priority="debugging", submitted=10)
    fates = simulate.simulate(alone(*sweep, debugging), ONE, Policy(), Faults())
    assert fates["d"].started == 600  # when the first four end


def test_a_preempted_run_goes_on_from_its_last_checkpoint() -> None:
    faults = Faults({"nodes": 3.0}, {"nodes": 60}, attempts=NEVER, seed=2)
    (fate,) = simulate.simulate(alone(job("a", HOUR)), ONE, Policy(), faults).values()
    assert len(fate.spells) > 1
    done = 0
    for spell in fate.spells:
        kept = spell.end - spell.start - spell.lost
        assert kept % 600 == 0 or spell is fate.spells[-1]
        done += kept
    assert done == HOUR
    assert fate.lost_device_seconds() == fate.device_seconds() - HOUR


def test_a_slice_that_was_preempted_is_missing_until_it_is_back() -> None:
    faults = Faults({"nodes": 2.0}, {"nodes": 900}, attempts=NEVER, seed=1)
    whole = job("whole", HOUR, count=4)
    (fate,) = simulate.simulate(alone(whole), ONE, Policy(), faults).values()
    assert len(fate.spells) > 1
    assert all(after.start == before.end + 900 for before, after in pairwise(fate.spells))


def test_a_run_fails_after_so_many_preemptions() -> None:
    faults = Faults({"nodes": 3600.0}, attempts=3)
    (fate,) = simulate.simulate(alone(job("a")), ONE, Policy(), faults).values()
    assert (fate.state, fate.why, len(fate.spells)) == ("failed", "it was preempted 3 times", 3)


def test_a_run_ends_when_what_was_set_aside_is_spent() -> None:
    policy = Policy(budgets={("ada", "h100"): 2 * HOUR})
    late = job("a", seconds=3 * HOUR, expected=HOUR)
    (fate,) = simulate.simulate(alone(late), ONE, policy, Faults()).values()
    assert (fate.state, fate.ended) == ("failed", HOUR)
    assert fate.why == "what was reserved for it is spent"


def test_preemptions_do_not_depend_on_other_runs() -> None:
    faults = Faults({"nodes": 1.0}, attempts=NEVER, seed=4)
    first = simulate.simulate(alone(job("a")), ONE, Policy(), faults)["a"]
    crowd = alone(job("a"), job("b", person="bob"), job("c", person="cyd"))
    among = simulate.simulate(crowd, ONE, Policy(), faults)["a"]
    assert [spell.end - spell.start for spell in first.spells] == [
        spell.end - spell.start for spell in among.spells
    ]


def test_two_runs_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two runs are called a"):
        simulate.simulate(alone(job("a"), job("a")), ONE, Policy(), Faults())


# ── Figures ──────────────────────────────────────────────────────────────────────────────────


def test_figures_are_counted_as_one_would_by_hand() -> None:
    """Four devices: `a` holds all for an hour, then `b` two for two hours; `c` wants five."""
    jobs = [
        job("a", HOUR, count=4, submitted=100),
        job("b", 2 * HOUR, count=2, person="bob", submitted=100 + HOUR // 2),
        job("c", count=5, person="bob", submitted=100),
    ]
    fates = simulate.simulate(alone(*jobs), ONE, Policy(), Faults())
    found = summarise(fates, ONE, {"nodes": 2.5})
    assert found.makespan == 3 * HOUR
    (pool,) = found.pools
    assert (pool.devices, pool.device_hours, pool.lost, pool.cost) == (4, 8.0, 0.0, 20.0)
    assert pool.utilisation == pytest.approx(8 / 12)
    everyone = found.all
    assert (everyone.runs, everyone.finished, everyone.preemptions) == (3, 2, 0)
    assert (everyone.mean_wait, everyone.median_wait) == (HOUR / 4, HOUR / 4)
    assert (everyone.longest_wait, everyone.done_after) == (HOUR / 2, 3 * HOUR)
    assert everyone.p95_wait == pytest.approx(0.95 * HOUR / 2)
    assert [(group.name, group.device_hours) for group in found.people] == [("ada", 4), ("bob", 4)]
    assert [group.name for group in found.priorities] == ["run"]
    (why,) = found.troubles
    assert "c needs 5 devices" in why


def test_a_pool_without_a_price_makes_no_cost() -> None:
    fates = simulate.simulate(alone(job("a")), ONE, Policy(), Faults())
    found = summarise(fates, ONE, {"nodes": None})
    assert (found.pools[0].cost, found.all.cost) == (None, None)


def test_time_lost_to_preemption_is_counted() -> None:
    faults = Faults({"nodes": 3.0}, attempts=NEVER, seed=2)
    fates = simulate.simulate(alone(job("a")), ONE, Policy(), faults)
    (pool,) = summarise(fates, ONE, {}).pools
    assert pool.lost == pytest.approx(1 - 1 / pool.device_hours)


def test_the_mean_level_of_a_stretch_is_weighted_by_time() -> None:
    edges = np.array([0.0, 10.0, 20.0, 30.0])
    level = simulate_chart.mean_level([(0, 5, 4), (5, 15, 2), (12, 30, 1)], edges)
    assert level.tolist() == [3.0, 1.8, 1.0]
    assert simulate_chart.mean_level([], edges).tolist() == [0.0, 0.0, 0.0]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9)), max_size=9))
def test_the_mean_level_keeps_the_total(intervals: list[tuple[int, int, int]]) -> None:
    known = [(min(a, b), max(a, b), n) for a, b, n in intervals]
    level = simulate_chart.mean_level(known, np.linspace(0, 99, 12))
    total = sum((end - begin) * n for begin, end, n in known)
    assert level.sum() * 9 == pytest.approx(total, abs=1e-6)
