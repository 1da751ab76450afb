"""Curves and progress, from what jobs report."""

import json
from pathlib import Path

import pytest

from runner.cli import terminal
from runner.execution.lifecycle import Facts
from runner.execution.progress import progress
from runner.history import run_metrics
from runner.planning import planner
from runner.schema.record import PlannedStep
from runner.store import artifacts, scratch_paths
from runner.store.store import Store
from tests import synthetic
from tests.pretended import declare

ARM = synthetic.planned_arm(steps=16)
A_STEP = 16 * 256


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def report(folder: Path, steps: range, loss: float | None, chunk: int = 0) -> Path:
    """A chunk of metrics."""
    lines = [
        json.dumps(
            {
                "step": step,
                "loss": loss,
                "grad_norm": 1.0,
                "skipped": loss is None,
                "learning_rate": 0.1,
                "tokens": step * A_STEP,
                "tokens_per_second": 1000.0,
            }
        )
        for step in steps
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{chunk:06d}.jsonl").write_text("\n".join(lines))
    return folder.resolve()


def losses(refused: list[str], *folders: Path) -> dict[int, float | None]:
    found = run_metrics.curve(folders, 16, lambda step: step * A_STEP)
    refused += found.refused
    return {line.step: line.loss for line in found.lines}


def test_the_speed_of_a_run_is_of_all_its_tokens(tmp_path: Path) -> None:
    line = {"loss": 1.0, "grad_norm": 1, "learning_rate": 1}
    lines = [
        json.dumps({**line, "step": step, "tokens": step * A_STEP, "tokens_per_second": speed})
        for step, speed in ((1, None), (2, 100.0), (3, 300.0))
    ]
    tmp_path.joinpath("000000.jsonl").write_text("\n".join(lines))
    found = run_metrics.curve([tmp_path.resolve()], 16, lambda step: step * A_STEP)
    assert (found.tokens_per_second, found.mean_tokens_per_second) == (300.0, 150.0)


def test_a_curve_is_the_union_by_step_and_the_later_maker_wins(tmp_path: Path) -> None:
    first = report(tmp_path / "first", range(1, 8), 5.0)
    second = report(tmp_path / "second", range(5, 12), 4.0)
    refused: list[str] = []
    found = losses(refused, first, second)
    assert found == {**dict.fromkeys(range(1, 5), 5.0), **dict.fromkeys(range(5, 12), 4.0)}
    assert refused == []


def test_a_line_that_contradicts_the_plan_is_refused(tmp_path: Path) -> None:
    first = report(tmp_path / "first", range(15, 18), 5.0)
    line = {"step": 1, "loss": 0.1, "grad_norm": 1, "learning_rate": 1, "tokens": A_STEP + 1}
    (first / "000001.jsonl").write_text(json.dumps(line))
    refused: list[str] = []
    assert losses(refused, first) == {15: 5.0, 16: 5.0}
    assert len(refused) == 2
    assert "step 17" in refused[0]
    assert f"step 1 with {A_STEP + 1} tokens" in refused[1]


def test_lines_that_contradict_the_plan_are_named_up_to_a_number(tmp_path: Path) -> None:
    first = report(tmp_path / "first", range(17, 70), 5.0)
    refused: list[str] = []
    assert losses(refused, first) == {}
    assert len(refused) == 21
    assert refused[-1].endswith("the rest was not read")


def making(store: Store, step: PlannedStep, generation: int = 1) -> Path:
    """Where somebody who now makes a step notes its metrics."""
    start = artifacts.Start(
        name=step.store,
        fingerprint=step.fingerprint,
        generation=generation,
        maker="0" * 16,
        by="x1",
        host="here",
    )
    store.create(f"leases/{start.lease}/start.json", start.canonical())
    return scratch_paths.of(store.local(start.folder)) / scratch_paths.CURVE


def test_progress_counts_tokens_over_all_runs_and_says_what_is_left(store: Store) -> None:
    plan = synthetic.plan(arms={"fast": ARM}, seeds=[0, 1])
    facts = Facts(synthetic.execution(plan), (), None, None, None)
    one, other = (plan.steps[f"train/fast,seed={seed}"] for seed in (0, 1))
    nothing = progress(store, facts, {"tokenize"})
    assert (nothing.fraction, nothing.seconds_left) == (0.0, None)
    report(making(store, one), range(1, 17), 3.0)
    report(making(store, other), range(1, 4), 5.0)  # who was lost
    report(making(store, other, 2), range(3, 5), 4.0)
    found = progress(store, facts, {"tokenize", "train/fast,seed=0"})
    assert [(run.name, run.step, run.loss) for run in found.runs] == [
        ("fast.s0", 16, 3.0),
        ("fast.s1", 4, 4.0),
    ]
    assert found.tokens == 20 * A_STEP
    assert found.fraction == 20 / 32
    assert found.seconds_left == 12 * A_STEP / 1000.0


def test_a_failed_run_has_no_time_left_and_parallel_speeds_add_up(
    store: Store,
) -> None:
    plan = synthetic.plan(arms={"fast": ARM}, seeds=[0, 1, 2])
    facts = Facts(synthetic.execution(plan), (), None, None, None)
    for seed, last in enumerate((3, 4, 8)):
        step = plan.steps[f"train/fast,seed={seed}"]
        report(making(store, step), range(1, last + 1), 3.0)
    failed = "train/fast,seed=0"
    found = progress(store, facts, {"tokenize", failed}, {failed})
    assert [(run.step, run.ended) for run in found.runs] == [(3, True), (4, False), (8, False)]
    assert (found.tokens, found.of_tokens) == (15 * A_STEP, 35 * A_STEP)
    assert found.tokens_per_second == 2000.0


def test_a_skipped_step_counts_and_the_last_loss_is_of_the_one_before(store: Store) -> None:
    plan = synthetic.plan(arms={"fast": ARM}, seeds=[0])
    facts = Facts(synthetic.execution(plan), (), None, None, None)
    curve = making(store, plan.steps["train/fast,seed=0"])
    report(curve, range(1, 4), 3.0)
    report(curve, range(4, 6), None, chunk=1)
    [run] = progress(store, facts, {"tokenize"}).runs
    assert (run.step, run.loss) == (5, 3.0)
    assert progress(store, facts, {"tokenize"}).tokens == 5 * A_STEP


def noted(step: int, loss: float | None = 5.5, **figures: object) -> str:
    plain = {"grad_norm": 1.0, "learning_rate": 0.1, "tokens": step * 32, "skipped": loss is None}
    return json.dumps({"step": step, "loss": loss, **plain, **figures}) + "\n"


NOT_BEGUN = "0 of 2 runs trained · next: deep.s0"


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([noted(1), noted(2, 5.25)], "deep.s0 step 2/4 · loss 5.250"),
        ([noted(1), noted(2, 5.25, tokens_per_second=50.0)], "deep.s0 step 2/4 · loss 5.250 · 50"),
        ([noted(1) + noted(2, 5.25) + '{"step": 3, "lo'], "deep.s0 step 2/4 · loss 5.250"),
        ([noted(2, 5.25)] * 12, "deep.s0 step 2/4 · loss 5.250"),
        ([noted(3, None)], "deep.s0 step 3/4"),
        ([noted(9, 1.0)], NOT_BEGUN),
        ([noted(3, tokens=5)], NOT_BEGUN),
        ([noted(3, grad_norm=10**400)], NOT_BEGUN),
        (['[1, "\\u001b"]\n'], NOT_BEGUN),
        (["no word\n"], NOT_BEGUN),
        ([], NOT_BEGUN),
    ],
)
def test_a_step_that_trains_is_as_far_as_it_has_noted(
    store: Store, tmp_path: Path, chunks: list[str], words: str
) -> None:
    plan = planner.plan_folder(declare(tmp_path / "which"), store)
    facts = Facts(synthetic.execution(plan), (), None, None, None)
    step, before = plan.steps["train/deep"], {"prepare", "tokens"}
    seen = []

    def build(out: Path) -> None:
        curve = scratch_paths.of(out) / "curve"
        curve.mkdir(parents=True)
        for n, text in enumerate(chunks):
            (curve / f"{n:06d}.jsonl").write_text(text)
        seen.extend(progress(store, facts, told) for told in (before, {"prepare"}))

    artifacts.make(store, step.store, step.fingerprint, build, {})
    now, early = seen
    assert terminal._words(now).startswith(words)
    assert (early.fraction, now.runs[1].step) == (0.0, 0)
    made = progress(store, facts, {*before, "train/deep"})
    assert (made.fraction, terminal._words(made)) == (0.5, "1 of 2 runs trained · next: wide.s0")


def test_runs_are_told_in_the_order_in_which_they_train(store: Store) -> None:
    plan = planner.plan_folder(Path(__file__).parents[3] / "experiments/warm-learning-rate")
    advance = progress(store, Facts(synthetic.execution(plan), (), None, None, None))
    names = [f"{arm}.s{seed}" for arm in ("slow", "fast") for seed in range(3)]
    assert [run.name for run in advance.runs] == names
    assert terminal._words(advance) == "0 of 6 runs trained · next: slow.s0"
