"""cluster.yaml: what is read and what is said about it."""

from pathlib import Path

import pytest

from runner.scheduler import cluster
from runner.scheduler.cluster import BadCluster
from runner.scheduler.queue_order import Policy, Pool
from runner.scheduler.queue_state import HOUR
from tests.decided import KINDS

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "cluster.yaml"


# ── cluster.yaml ─────────────────────────────────────────────────────────────────────────────


def test_the_example_describes_what_it_says() -> None:
    found = cluster.load(EXAMPLE, KINDS)
    assert found.cluster.pools == (
        Pool("nodes", "h100", 64, 1),
        Pool("reserved", "v5p", 4, 64),
        Pool("spot", "v5p", 32, 16),
        Pool("desks", "cpu", 8, 1),
    )
    assert found.policy.budgets == {("person-2", "v5p"): 12_000 * HOUR}


def test_a_cluster_needs_only_two_lines() -> None:
    found = cluster.parse("pools:\n  mine: {kind: cpu, count: 2}\n", "c.yaml")
    assert found.cluster.pools == (Pool("mine", "cpu", 2, 1),)
    assert found.policy == Policy()


GOOD = """\
pools:
  mine: {kind: v5p, count: 64, slice: 16}
policy:
  half_life_hours: 10
  budgets_device_hours: {ada: {v5p: 5}}
"""


@pytest.mark.parametrize(
    ("was", "now", "complaint"),
    [
        ("kind: v5p", "kind: v5q", "line 2, `pools.mine.kind`: no kind of device `v5q` is known"),
        ("kind: v5p", "kind: v5q", "no kind of device `v5q` is known, only `cpu`, `h100`, `h200`"),
        ("count: 64, ", "", "line 2, `pools.mine.count`: is missing"),
        ("count:", "coutn:", "line 2, `pools.mine.coutn`: unknown key; did you mean `count`?"),
        ("count: 64", "count: many", "`pools.mine.count`: must be a whole number, not `many`"),
        ("count: 64", "count: 0", "`pools.mine.count`: it should be greater than 0, not `0`"),
        ("count: 64", "count: 65", "`pools.mine.count`: 65 devices are no whole number of slices"),
        ("slice: 16", "slice: 12", "`pools.mine.slice`: v5p comes in slices of 4, 8, 16,"),
        ("half_life_hours: 10", "half_life: 10", "line 4, `policy.half_life`: unknown key"),
        ("half_life_hours: 10", "half_life_hours: 0", "should be greater than 0, not `0`"),
        ("{v5p: 5}", "{v5e: 5}", "line 5, `policy.budgets_device_hours.ada.v5e`: no pool has"),
        ("{v5p: 5}", "{v5e: 5}", "no pool has devices of kind `v5e`, only of `v5p`"),
        ("pools:", "pool:", "line 1, `pool`: unknown key; did you mean `pools`?"),
        (GOOD, "pools: {}", "line 1, `pools`: must not be empty"),
        (GOOD, "- 1", "line 1: it must be a mapping with keys such as `pools` and `policy`"),
        (GOOD, "pools: [", "line 1: it is not YAML"),
        (GOOD, "", "line 1: it is empty; examples/cluster.yaml shows how"),
        ("mine:", '"":', "`` is not a name of a pool; use up to 80"),
        ("mine:", '"a\\nb":', "`a b` is not a name of a pool"),
        (GOOD, "pools: {a: 3}", "line 1, `pools.a`: must be a mapping of keys to values, not `3`"),
    ],
)
def test_a_problem_has_its_line_field_and_did_you_mean(was: str, now: str, complaint: str) -> None:
    assert GOOD.count(was) == 1
    with pytest.raises(BadCluster) as caught:
        cluster.parse(GOOD.replace(was, now), "c.yaml")
    assert complaint in str(caught.value)
    assert all(problem.file == "c.yaml" for problem in caught.value.problems)


def test_a_pool_may_have_any_name_that_can_be_shown() -> None:
    named = cluster.parse(GOOD.replace("mine:", '"A100 (80GB), eu/1":'), "c.yaml")
    assert named.cluster.pools[0].name == "A100 (80GB), eu/1"
