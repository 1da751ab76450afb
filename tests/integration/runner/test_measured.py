"""An experiment that competes, from its declaration to its row: what is counted, what is measured
and what keeps it from a rank."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.messages import plan_comment
from bot.site.facts.lab import read_lab
from bot.site.pages import build as pages_build
from engine.config import flops
from engine.config.schema import ModelConfig
from engine.data.lab_texts import read_text
from runner.analysis import speedrun_ranking, speedrun_rows
from runner.analysis.comparability import Scored
from runner.history import measurements, provenance
from runner.lib.problems import BadExperiment
from runner.planning import limits, planner
from runner.planning.lockfile import compiled
from runner.schema import lab_config, record, step_graph
from runner.schema.record import EnteredRun, Execution, Resources, Result
from runner.schema.tracks import Track
from runner.spec import declaration
from runner.store import artifacts
from runner.store.store import Store
from tests import synthetic
from tests.decided import KINDS, decide, one_track
from tests.stub_trainer import StubJob
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import local as local  # a fixture
from tests.unit.site.test_pages import Page

DECLARED = """\
title: A small run
data: {source: lab-2026-11}
model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}
train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
eval: {tokens: 64}
resources: {kind: cpu}
speedrun:
  track: tiny
  author: {name: Ada, affiliation: Regatta, url: https://example.org/ada}
seeds: [0, 1]
arms:
  plain: {}
  mine: {model: {width: 4}, own: {model: "model:Mine"}}
"""
STEPS = """\
title: Steps that compete
resources: {kind: cpu, ceiling_hours: 0.5}
speedrun: {track: tiny, author: {name: Ada}}
steps:
  tokens: {do: tokenize, config: {source: lab-2026-11}}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}
      train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
  evaluate: {do: evaluate, inputs: {models: train, tokens: tokens}, config: {tokens: 64}}
"""
PYTHON = """\
from runner.api import Declaration, Step

experiment = Declaration(
    title="In Python",
    resources={"kind": "cpu"},
    speedrun={"track": "tiny", "author": {"name": "Ada"}},
    steps={"tokens": Step(do="tokenize", config={"source": "lab-2026-11"})},
)
"""
APART = {"isolation": "bubblewrap 0.8.0, no network; memory …"}
TOKENS = 4 * 2 * 16
PLAIN = ModelConfig(hidden_dim=8, intermediate_dim=16, num_layers=1, num_heads=2, seq_len=16)


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path) -> Track:
    return track_in(tmp_path)


def track_in(root: Path) -> Track:
    """The one track of the lab in whose checkout `root` is."""
    text = read_text("lab-2026-11", None).validation_sha256
    decide(root, tracks=one_track("tiny", 3.0, 64, text))
    return lab_config.find(root).tracks["tiny"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return declare(tmp_path / "small")


def declare(folder: Path, declared: str = DECLARED) -> Path:
    folder.mkdir()
    (folder / "experiment.yaml").write_text(declared)
    (folder / "model.py").write_text("class Mine:\n    pass\n")
    return folder


def made(
    *,
    void: str = "",
    forward: int | None = 50,
    isolated: bool = True,
    lost: int = 0,
    other: Mapping[str, int] = {},
) -> Any:
    """What makes the steps of an attempt's plan: `mine` is found to be so."""

    def make_steps(job: StubJob) -> None:
        plan, store = job.spec.plan, Store(job.root)
        for name in step_graph.order({name: step.needs for name, step in plan.steps.items()}):
            step = plan.steps[name]
            by = job.spec.attempt.partition(".")[0]

            def build(out: Path, name: str = name) -> None:
                lease = store.list(f"leases/steps/{plan.steps[name].store}")
                if plan.steps[name].do == "train" and len(lease) and lost > generation(out):
                    raise artifacts.MakerLost("its machine went away")
                if plan.steps[name].do == "evaluate":
                    scores = {
                        m.partition("/")[2]: score(m) for m in plan.steps[name].inputs["models"]
                    }
                    (out / "scores.json").write_text(json.dumps(scores))
                elif plan.steps[name].do == "train":
                    config = plan.steps[name].config
                    (out / "model.json").write_text(json.dumps({**config["model"], **other}))
                    (out / "own.json").write_text(json.dumps(config["own"]))
                else:
                    (out / "made.txt").write_text(name)

            said = APART if isolated else {"isolation": "none: run by hand"}
            receipt = said if step.own else {}
            args = (store, step.store, step.fingerprint, build, {})
            clock = itertools.count(0.0, 5.0).__next__  # each build takes 5 s
            artifacts.make(*args, by=by, receipt=lambda receipt=receipt: receipt, monotonic=clock)

    def score(model: str) -> dict[str, Any]:
        told: dict[str, Any] = {"bpb": 2.5 + len(model) / 1e9, "loss": 1.0, "targets": 64}
        told["params_sha256"] = hashlib.sha256(model.encode()).hexdigest()
        if model.endswith("seed=1"):
            told["bpb"] += 1e-6
        if "mine" in model and isolated:
            examined = {"positions": 64, "largest": 0.0, "void": void, "uncounted": ""}
            told["examined"] = examined | {"forward_flops_per_token": forward}
            told["parameters"] = 77
        return told

    return make_steps


def generation(out: Path) -> int:
    return int(out.name.partition("-")[0])


def ran(local: LocalStub, folder: Path, store: Path, make_steps: Any) -> tuple[Execution, Result]:
    local.ray.make_steps = make_steps
    answer = ask("run", folder, "--store", store)
    assert answer.exit_code == 0, answer.output
    opened = Store(store)
    (name,) = record.names(opened, "executions")
    result = record.require(opened, f"executions/{name}/result", Result)
    return record.require(opened, f"executions/{name}/execution", Execution), result


# ── Declared ─────────────────────────────────────────────────────────────────────────────────


def test_a_speedrun_runs_as_steps_with_equal_fingerprints(folder: Path) -> None:
    plan = planner.plan_folder(folder)
    assert plan.speedrun is not None
    assert (plan.speedrun.track, plan.speedrun.author.name) == ("tiny", "Ada")
    without = DECLARED.replace("speedrun:\n  track: tiny\n", "").replace(
        "  author: {name: Ada, affiliation: Regatta, url: https://example.org/ada}\n", ""
    )
    (folder / "experiment.yaml").write_text(without)
    other = planner.plan_folder(folder)
    assert other.speedrun is None
    assert {name: step.fingerprint for name, step in plan.steps.items()} == {
        name: step.fingerprint for name, step in other.steps.items()
    }
    assert plan.fingerprint != other.fingerprint, "an approval is for what was shown"


def test_steps_and_python_declare_it_as_well(tmp_path: Path) -> None:
    plan = planner.plan_folder(declare(tmp_path / "steps", STEPS))
    assert plan.speedrun
    assert plan.ceiling_hours == 0.5
    folder = tmp_path / "python"
    folder.mkdir()
    (folder / "experiment.py").write_text(PYTHON)
    (folder / "experiment.lock.yaml").write_text(compiled(folder))
    assert planner.plan_folder(folder).speedrun == plan.speedrun


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("track: tiny", "track: tinny", 8, "`tinny`; there are tiny; did you mean `tiny`?"),
        ("name: Ada, ", "", 9, "is missing"),
        ("https://example.org/ada", "javascript:alert(1)", 9, "should match pattern"),
        ("affiliation:", "afiliation:", 9, "did you mean `affiliation`?"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_at_its_line(
    tmp_path: Path, old: str, new: str, line: int, sentence: str
) -> None:
    lab = lab_config.find(tmp_path)
    with pytest.raises(BadExperiment) as caught:
        declaration.parse(DECLARED.replace(old, new), "experiment.yaml", lab)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert sentence in problem.message


def test_plans_say_what_competes_and_that_own_models_are_counted_later(folder: Path) -> None:
    words = " ".join(ask("plan", folder).output.split())
    assert "This enters the track `tiny` for Ada (Regatta): the fewest model FLOPs" in words
    assert "would not be ranked" not in words
    assert "2 of 4 runs train its own models, whose FLOPs are unknown before they run" in words


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("lab-2026-11", "stdlib", "and this track is on lab-2026-11"),
        ("tokens: 64", "tokens: 128", "128 tokens (byte), and this track is on 64"),
    ],
)
def test_a_plan_says_beforehand_what_will_keep_it_from_a_rank(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    plan = planner.plan_folder(declare(tmp_path / "x", DECLARED.replace(old, new)))
    assert why in speedrun_rows.foreseen(plan)[1]


def test_a_declared_ceiling_is_shown_and_is_the_limit(tmp_path: Path) -> None:
    asked = DECLARED.replace("{kind: cpu}", "{kind: cpu, ceiling_hours: 0.25}")
    plan = planner.plan_folder(declare(tmp_path / "x", asked))
    assert limits.limit_seconds(plan, 4.0) == 900
    said = " ".join(ask("plan", tmp_path / "x").output.split())
    assert "time limit 15 min 0 s (0.25 device-hours, as declared)" in said
    without = planner.plan_folder(declare(tmp_path / "y"))
    assert limits.limit_seconds(without, 4.0) == 5 * 3600
    assert plan.fingerprint != without.fingerprint


def test_a_digest_claimed_by_the_author_is_ignored(tmp_path: Path, tiny: Track) -> None:
    said = f"sha256: {{validation: {tiny.data.validation_sha256}}}"
    forged = STEPS.replace(
        "  tokens: {do: tokenize, config: {source: lab-2026-11}}",
        '  mine: {do: "model:Mine"}\n'
        f"  tokens: {{do: tokenize, inputs: {{text: mine}}, config: {{{said}}}}}",
    )
    assert speedrun_rows.on(planner.plan_folder(declare(tmp_path / "x", forged))) is None


def test_the_thread_is_told_what_competes_and_the_ceiling(tmp_path: Path) -> None:
    asked = DECLARED.replace("{kind: cpu}", "{kind: cpu, ceiling_hours: 0.25}")
    plan = planner.plan_folder(declare(tmp_path / "x", asked))
    found = record.PlanRecord(
        repository=7,
        pull=2,
        n=1,
        commit="a" * 40,
        at=synthetic.START,
        plan=plan,
        code="k3f9-aaaa",
        limit_seconds=limits.limit_seconds(plan, 4.0),
        isolation="bubblewrap",
    )
    said = plan_comment.plan(found, "https://example.org")
    assert (
        "whose FLOPs the lab counts after the approval (at most 0.25 device-hours, as decl" in said
    )
    assert "This enters the track `tiny` for Ada (Regatta)" in said
    assert "longer than 15 min 0 s, the lab stops it" in said


# ── Measured ─────────────────────────────────────────────────────────────────────────────────


def test_runs_are_counted_by_formula_or_trace_and_measured_by_the_clock(
    folder: Path, local: LocalStub, tmp_path: Path
) -> None:
    execution, result = ran(local, folder, tmp_path / "store", made())
    found = {(run.arm, run.seed): run for run in result.entered}
    assert found.keys() == {(arm, seed) for arm in ("plain", "mine") for seed in (0, 1)}
    plain, mine = found["plain", 0], found["mine", 1]
    assert (plain.own, plain.parameters) == (False, flops.parameters(PLAIN))
    assert plain.model_flops == flops.model_flops(PLAIN, TOKENS)
    assert (mine.own, mine.own_model, mine.isolated) == (True, True, True)
    assert (mine.parameters, mine.tokens, mine.model_flops) == (77, TOKENS, 3 * 50 * TOKENS)
    for run in found.values():
        assert (run.seconds, run.hardware_flops) == (5.0, 5 * KINDS["cpu"].peak_flops)
    rows = {row.title: row for row in speedrun_rows.rows(execution, result)}
    assert rows["A small run: mine"].custom
    assert not rows["A small run: plain"].custom
    assert rows["A small run: mine"].tier == "self-reported", "nobody has approved it"
    text = read_text("lab-2026-11", None).validation_sha256
    assert {row.scored for row in rows.values()} == {Scored("lab-2026-11", "byte", text, 64)}


def test_a_row_is_ranked_by_measured_flops_not_declared_ones(
    folder: Path, local: LocalStub, tmp_path: Path, tiny: Track
) -> None:
    execution, result = ran(local, folder, tmp_path / "store", made(forward=0))
    ranked = speedrun_ranking.rank(tiny, speedrun_rows.rows(execution, result))
    assert [one.row.title for one in ranked] == ["A small run: plain", "A small run: mine"]
    mine = ranked[1]
    assert mine.row.model_flops == (0.0, 0.0)
    assert mine.value == 5 * KINDS["cpu"].peak_flops
    assert mine.rank == 2


def test_a_replay_of_one_arm_verifies_no_other_arm(
    folder: Path, local: LocalStub, tmp_path: Path
) -> None:
    execution, result = ran(local, folder, tmp_path / "store", made())
    steps = execution.plan.trained()

    def tiers(*of: tuple[str, int, Any]) -> dict[str, str]:
        replays = [
            record.Replayed(at=result.at, run=steps[arm, seed], first=0, last=2, how=how, words=how)
            for arm, seed, how in of
        ]
        found = speedrun_rows.rows(execution, result, replays)
        return {row.title.rpartition(" ")[2]: row.tier for row in found}

    plain = ("plain", 0, "bit for bit")
    assert tiers(plain) == {"plain": "replayed", "mine": "self-reported"}
    assert tiers(plain, ("mine", 1, "differs"))["plain"] == "replayed"
    assert tiers(plain, ("plain", 1, "differs"))["plain"] == "self-reported"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"void": "at position 3 of window 4 …"}, "seed 0: at position 3 of window 4"),
        ({"other": {"width": 9}}, "seed 0: its training left another model than was planned"),
        ({"isolated": False}, "seed 0: its own code ran without isolation"),
    ],
)
def test_a_model_that_failed_the_probe_has_no_rank(
    folder: Path,
    local: LocalStub,
    tmp_path: Path,
    tiny: Track,
    found: dict[str, Any],
    why: str,
) -> None:
    execution, result = ran(local, folder, tmp_path / "store", made(**found))
    ranked = {
        x.row.title: x for x in speedrun_ranking.rank(tiny, speedrun_rows.rows(execution, result))
    }
    assert ranked["A small run: mine"].rank is None
    assert why in ranked["A small run: mine"].why


def test_time_of_a_maker_that_was_lost_counts(
    folder: Path, local: LocalStub, tmp_path: Path
) -> None:
    """Else one could train, save, end one's own process, and be measured on what is left."""
    _, result = ran(local, folder, tmp_path / "store", made(lost=2))
    for run in result.entered:
        assert run.measured.startswith("of a lost maker it went on from")
        assert run.seconds is not None


def test_a_step_from_other_devices_has_no_cost_on_the_declared_ones(
    folder: Path, local: LocalStub, tmp_path: Path
) -> None:
    """Else one could train on many devices, and enter what is cached as made on one."""
    first, result = ran(local, folder, tmp_path / "store", made())
    assert {run.seconds for run in result.entered} == {5.0}
    store = Store(tmp_path / "store")

    def entered_again(count: int) -> tuple[EnteredRun, ...]:
        resources = Resources(kind="cpu", count=count)
        steps = {
            name: step.model_copy(update={"resources": resources})
            for name, step in first.plan.steps.items()
        }
        plan = first.plan.model_copy(update={"steps": steps})
        again = first.model_copy(update={"id": "x" + "1" * 16, "plan": plan})
        return measurements.runs(store, again, provenance.step_ends(store, again), 0.0)

    assert {run.seconds for run in entered_again(1)} == {5.0}
    for run in entered_again(2):
        assert run.evaluated
        assert (run.seconds, run.hardware_flops) == (None, None)
        assert f"{first.id} made it on 1 × cpu" in run.measured


def test_the_site_has_the_rows_with_their_reasons(
    folder: Path, local: LocalStub, tmp_path: Path
) -> None:
    ran(local, folder, tmp_path / "store", made(void="at position 3 of window 4 it looked"))
    store = Store(tmp_path / "store")
    tracks = lab_config.find(tmp_path).tracks
    pages_build.build(store, tmp_path / "site", tracks=tracks)
    text = " ".join(Page(tmp_path / "site" / "speedrun.html").text.split())
    assert "A small run: plain" in text
    assert "not ranked: seed 0: at position 3 of window 4 it looked" in text
    told = json.loads((tmp_path / "site" / "api" / "speedrun.json").read_text())
    assert [row["rank"] for row in told["tiny"]["rows"]] == [1, None]
    assert len(read_lab(store).competing) == 2
