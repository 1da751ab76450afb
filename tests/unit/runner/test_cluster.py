"""cluster.yaml: what is read and what is said about it; `regatta simulate` as it is typed."""

import json
import re
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runner.cli import main
from runner.planning import planner
from runner.scheduler import cluster
from runner.scheduler.cluster import BadCluster
from runner.scheduler.queue_order import Policy, Pool
from runner.scheduler.queue_state import HOUR
from tests.decided import KINDS
from tests.unit.runner.test_own_declared import SHORT, STEPS
from tests.unit.runner.test_own_declared import planned as declared

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
    assert found.faults.preemptions["spot"] == 0.01
    assert found.faults.away["spot"] == 1200
    assert found.prices == {"nodes": 2.5, "reserved": 4.2, "spot": 1.7, "desks": None}


def test_a_cluster_needs_only_two_lines() -> None:
    found = cluster.parse("pools:\n  mine: {kind: cpu, count: 2}\n", "c.yaml")
    assert found.cluster.pools == (Pool("mine", "cpu", 2, 1),)
    assert found.synthetic.runs == 0
    assert found.policy == Policy()


GOOD = """\
pools:
  mine: {kind: v5p, count: 64, slice: 16}
policy:
  half_life_hours: 10
  budgets_device_hours: {ada: {v5p: 5}}
synthetic: {runs: 5}
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
        ("runs: 5", "run: 5", "line 6, `synthetic.run`: unknown key; did you mean `runs`?"),
        ("runs: 5", "runs: 1e9", "line 6, `synthetic.runs`: must be a whole number"),
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


def test_a_synthetic_load_has_as_many_runs_as_it_says_and_is_always_the_same() -> None:
    found = cluster.load(EXAMPLE, KINDS)
    first, again = (
        list(cluster.synthetic(found.synthetic, found.cluster, seed=3)) for _ in range(2)
    )
    assert first == again
    assert first != list(cluster.synthetic(found.synthetic, found.cluster, seed=4))
    jobs = [each for one in first for each in one.jobs]
    assert len(jobs) == len({each.request.name for each in jobs}) == 400
    assert {each.request.priority for each in jobs} == {"debugging", "run", "sweep"}
    assert all(each.seconds <= each.request.seconds for each in jobs)


# ── Experiments ──────────────────────────────────────────────────────────────────────────────

EXPERIMENT = """\
title: Does a warmer learning rate pay off?
data: {source: text.txt, tokenizer: byte}
model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, seq_len: 32}
train: {train_batch_size: 512, num_train_steps: 100000, learning_rate: 0.003, checkpoint_every: 500}
eval: {tokens: 64}
resources: {kind: cpu, count: 1}
seeds: [0, 1, 2]
arms:
  short: {train: {num_train_steps: 50000}}
  long: {}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "warm"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    lines = (f"Line {n} of a small text to train on.\n" for n in range(400))
    (folder / "text.txt").write_text("".join(lines))
    return folder


def test_durations_come_from_the_plan(folder: Path) -> None:
    plan = planner.plan_folder(folder)
    (submission,) = [cluster.planned(plan, "warm", "ada", 50, seed=0)]
    assert [each.request.name for each in submission.jobs] == [
        f"warm.{arm}.s{seed}" for arm in ("long", "short") for seed in (0, 1, 2)
    ]
    expected = sum(each.request.seconds for each in submission.jobs)
    assert plan.cost.seconds[1] <= expected <= plan.cost.seconds[1] + 6
    taken = sum(each.seconds for each in submission.jobs)
    assert plan.cost.seconds[0] < taken < plan.cost.seconds[1]
    for each in submission.jobs:
        steps = 50_000 if "short" in each.request.name else 100_000
        assert each.checkpoint == pytest.approx(each.seconds * 500 / steps, abs=1)
        assert (each.request.submitted, each.request.priority) == (50, "run")


def test_own_code_is_simulated_unless_its_model_is_own(tmp_path: Path) -> None:
    plan = declared(tmp_path / "x", SHORT)
    submission = cluster.planned(plan, "x", "ada", 0, seed=0)
    assert [each.request.name for each in submission.jobs] == [
        *(f"x.harder.s{seed}" for seed in (0, 1)),
        *(f"x.theirs.s{seed}" for seed in (0, 1)),
    ]
    assert len(submission.jobs) == plan.cost.runs - plan.cost.uncounted


# ── As it is typed ───────────────────────────────────────────────────────────────────────────

THERE = "    do: train\n", "    do: train\n    resources: {kind: h100}\n"
LABS = (
    "{seq_len: 16, width: 4}",
    "{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}",
)
TWO = "pools:\n  desks: {kind: cpu, count: 2, price: 0.1}\n"


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, ["simulate", *map(str, words)], env={"COLUMNS": "110"})


@pytest.fixture
def two(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    return file


def test_simulate_says_what_would_wait_and_cost(two: Path, folder: Path) -> None:
    answer = ask(two, folder)
    assert answer.exit_code == 0, answer.output
    assert "6 runs on 2 devices: done after " in answer.stdout
    words = " ".join(answer.stdout.split())
    assert "│ desks │ cpu │ 2 │" in words
    assert "│ warm │ 6 │ 6 │" in words
    assert "seed 0" in words
    assert "did not finish" not in words
    (cost,) = re.findall(r"for (0\.\d\d) US\$", words)
    assert words.count(f"│ {cost} │") == 2, "the pool's and the experiment's"
    assert "in use: share of the pool's device-hours until everything was done" in words


def test_the_headline_says_what_did_not_finish(two: Path, folder: Path) -> None:
    two.write_text(f"{TWO}policy: {{budgets_device_hours: {{you: {{cpu: 0}}}}}}\n")
    words = " ".join(ask(two, folder).stdout.split())
    assert "6 runs on 2 devices: none of them started" in words
    assert "6 runs did not finish: the experiment needs" in words
    two.write_text(f"{two.read_text()}synthetic: {{runs: 3}}\n")
    words = " ".join(ask(two, folder).stdout.split())
    assert "9 runs on 2 devices: done after " in words
    assert " US$; 6 runs did not finish" in words


def test_runs_left_out_of_a_simulation_are_listed(two: Path, tmp_path: Path) -> None:
    declared(tmp_path / "x", SHORT)
    words = " ".join(ask(two, tmp_path / "x").stdout.split())
    assert "4 runs on 2 devices" in words
    assert (
        "x: not simulated: 2 runs that would train its own models, whose FLOPs are unknown" in words
    )
    assert json.loads(ask(two, tmp_path / "x", "--json").stdout)["left_out"] == {"x": 2}


def test_json_holds_all_figures_and_each_run(two: Path, folder: Path) -> None:
    answer = json.loads(ask(two, folder, folder, "--as", "ada", "--json").stdout)
    assert answer["all"]["finished"] == 12
    assert [group["name"] for group in answer["experiments"]] == ["warm", "warm-2"]
    assert [group["name"] for group in answer["people"]] == ["ada"]
    run = answer["each"]["warm-2.long.s1"]
    assert (run["state"], run["pools"], run["person"], run["attempts"]) == (
        "finished",
        ["desks"],
        "ada",
        1,
    )
    assert run["submitted"] == 0 <= run["started"] < run["ended"] <= answer["makespan"]
    cost = sum(each["device_hours"] for each in answer["each"].values()) * 0.1
    assert answer["all"]["cost"] == pytest.approx(cost)


def test_the_chart_is_drawn_as_its_name_says_and_always_the_same(two: Path, folder: Path) -> None:
    png, svg, again = (two.parent / name for name in ("a.png", "a.svg", "b.svg"))
    for file in (png, svg, again):
        assert ask(two, folder, "--chart", file).exit_code == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_bytes() == again.read_bytes()
    drawn = svg.read_text()
    for words in ("6 runs on 2 devices", "devices in use", "runs waiting", "desks", "debugging"):
        assert words in drawn


def test_bad_input_ends_in_words(two: Path, folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(TWO.replace("cpu", "cup"))
    gpus = tmp_path / "gpus.yaml"
    gpus.write_text(TWO.replace("cpu", "h100"))
    own, on_gpus = tmp_path / "own", tmp_path / "on_gpus"
    declared(own, STEPS)
    declared(on_gpus, STEPS.replace(*THERE).replace('model: "model:Mine", ', "").replace(*LABS))
    for words, complaint in (
        ((tmp_path / "none.yaml",), "there is no such file; a cluster is described in YAML"),
        ((tmp_path,), "it cannot be read"),
        ((bad, folder), "line 2, `pools.desks.kind`: no kind of device `cup` is known"),
        ((two,), "has no `synthetic:` load, so name an experiment"),
        ((two, tmp_path / "none"), "none does not exist"),
        ((gpus, folder), "experiment.yaml, line 6, `resources.kind`: "),
        ((gpus, folder), "describes no devices of kind `cpu`, only `h100`"),
        ((two, on_gpus), "experiment.yaml, line 7, `steps.train.resources.kind`: "),
        ((two, own), "it trains only its own models, whose FLOPs are unknown"),
        ((two, folder, "--chart", "a.pdf"), "end its name in .svg or .png"),
        ((two, folder, "--chart", tmp_path / "none" / "a.svg"), "cannot be written: No such file"),
    ):
        answer = ask(*words)
        assert (answer.exit_code, answer.stdout) == (2, ""), words
        assert complaint in " ".join(answer.stderr.split()), answer.stderr
