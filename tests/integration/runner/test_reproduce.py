"""What is said of a run that was run again."""

import json
from pathlib import Path

import pytest

from runner.analysis import run_comparison
from runner.execution import effects
from runner.isolation import bubblewrap
from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.schema.record import Evaluated, PlannedStep, Resources, StepEnd
from runner.store.store import Store
from tests import synthetic
from tests.pretended import RECEIPT, pretend
from tests.pretended import declare as declare_steps
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import folder as folder  # a fixture
from tests.unit.runner.test_cli import local as local


def figure(bpb: float, params: str = "a") -> Evaluated:
    return Evaluated(bpb=bpb, loss=1.0, targets=64, params_sha256=params * 64)


@pytest.mark.parametrize(
    ("before", "now", "how", "words"),
    [
        (figure(2.0), figure(2.0), "bit for bit", "2.0000 bits per byte, same parameters"),
        (figure(2.0), figure(2.0, "b"), "within the tolerance", "at most 1% apart"),
        (figure(2.0), figure(2.019, "b"), "within the tolerance", "2.0000 before, 2.0190"),
        (figure(2.0), figure(2.021, "b"), "differs", "more than 1% apart"),
        (figure(2.0), None, "not comparable", "no score now"),
        (None, figure(2.0), "not comparable", "no score before"),
    ],
)  # fmt: skip
def test_a_run_came_out_the_same_or_not(
    before: Evaluated | None, now: Evaluated | None, how: str, words: str
) -> None:
    run = synthetic.run(synthetic.plan(), "fast", 0, 2.0)
    one, other = (
        {"fast.s0": run.model_copy(update={"evaluated": evaluated})} for evaluated in (before, now)
    )
    [found] = run_comparison.compare(one, other).values()
    assert found.how == how
    assert words in found.words


def test_receipts_compare_cores_by_number() -> None:
    before = {"jax": "0.10.2", "affinity": "0,1"}
    assert run_comparison.differing(before, {"jax": "0.10.2", "affinity": "2,3"}) == []
    assert run_comparison.differing(before, {"affinity": "2"}) == [
        "affinity: 2 cores before, 1 cores now",
        "jax: 0.10.2 before, none now",
    ]


def test_an_execution_is_reproduced_from_its_id(
    folder: Path, local: LocalStub, tmp_path: Path
) -> None:
    at = ("--store", tmp_path / "store")
    first = json.loads(ask("run", folder, *at, "--json").stdout)["execution"]
    again = ask("reproduce", first, *at)
    assert again.exit_code == 0, again.output
    assert again.stdout.count("bit for bit") == 6 + 1
    kept = tmp_path / "kept"
    assert ask("reproduce", first, *at, "--into", kept).exit_code == 0
    texts = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("texts/*/*")}
        for root in (tmp_path / "store", kept)
    ]
    assert texts[0] == texts[1] != {}, "a text of its own is there again"
    local.ray.bpb = lambda _, seed: 5.0 + seed
    other = ask("reproduce", first, *at, "--json")
    assert other.exit_code == 1
    hows = {name: one["how"] for name, one in json.loads(other.stdout)["steps"].items()}
    assert hows.pop("tokenize") == "bit for bit"
    assert set(hows.values()) == {"differs"}


def test_an_execution_that_cannot_be_reproduced_is_refused_with_a_reason(
    local: LocalStub, tmp_path: Path
) -> None:
    nowhere = ask("reproduce", "x1", "--store", tmp_path / "store")
    assert (nowhere.exit_code, "there is no store at" in nowhere.stderr) == (2, True)
    (tmp_path / "store").mkdir()
    unknown = ask("reproduce", "x1", "--store", tmp_path / "store")
    assert (unknown.exit_code, "has no execution or experiment x1" in unknown.stderr) == (2, True)
    store = Store(tmp_path / "store")
    old = synthetic.execution(synthetic.plan().model_copy(update={"steps": {}}))
    synthetic.finish(store, old, synthetic.PLAIN)
    older = ask("reproduce", old.id, "--store", store.root)
    assert (older.exit_code, "is of an older lab" in older.stderr) == (2, True)
    assert local.started == 0


# ── Steps ────────────────────────────────────────────────────────────────────────────────────


def planned_step(*needs: str) -> PlannedStep:
    return PlannedStep(
        do="m:f",
        function="m:f",
        config={},
        inputs={"x": dict.fromkeys(needs, "a" * 64)} if needs else {},
        code={},
        resources=Resources(kind="cpu"),
        fingerprint="a" * 64,
        store="x",
    )


def made(output: str, jax: str = "1", **figures: float) -> run_comparison.Made:
    end = StepEnd(state="made", output_sha256=output * 64, receipt={"jax": jax})
    return run_comparison.Made(end, figures)


ONE = {"train": planned_step()}


@pytest.mark.parametrize(
    ("before", "now", "how", "words"),
    [
        (made("a"), made("a"), "bit for bit", "output aaaaaaaaaaaaaaaa"),
        (made("a"), made("a", "2"), "bit for bit", "output"),
        (made("a"), made("b"), "differs", "output aaaaaaaaaaaaaaaa before, bbbbbbbbbbbbbbbb now"),
        (made("a"), made("b", "2"), "differs", "before"),
        (made("a", loss=2), made("b", "2", loss=2.019), "within the tolerance", "2.0000 before"),
        (made("a", loss=2), made("b", "2", loss=2.021), "differs", "more than 1% apart"),
        (made("a", loss=2), made("b", loss=2.019), "differs", "although devices and versions"),
        (made("a", loss=2), made("b", "2", bpb=2), "differs", "output"),
        (made("a"), run_comparison.Made(None), "not comparable", "it did not run now"),
        (made("a"), run_comparison.Made(StepEnd(state="failed", why="the disk is full")),
         "not comparable", "it did not run now: the disk is full"),
        (run_comparison.Made(None), made("a"), "not comparable", "it did not run before"),
    ],
)  # fmt: skip
def test_a_step_came_out_the_same_or_not(
    before: run_comparison.Made, now: run_comparison.Made, how: str, words: str
) -> None:
    found = run_comparison.compare_steps(ONE, {"train": before}, {"train": now})["train"]
    assert found.how == how
    assert words in found.words
    assert run_comparison.whole({"train": found}) == how


def test_a_step_with_other_inputs_is_judged_by_tolerance_if_any() -> None:
    steps = {
        "train": planned_step(),
        "score": planned_step("train"),
        "table": planned_step("score"),
        "page": planned_step("table"),
    }
    before = {"train": made("a", loss=2), "score": made("a", bpb=3)}
    before |= {"table": made("a"), "page": made("a")}
    now = {"train": made("b", "2", loss=2.001), "score": made("b", bpb=3.001)}
    now |= {"table": made("b"), "page": made("b")}
    found = run_comparison.compare_steps(steps, before, now)
    assert [one.how for one in found.values()] == [
        *("within the tolerance", "within the tolerance"),
        *("follows its inputs", "follows its inputs"),
    ]
    assert run_comparison.whole(found) == "within the tolerance"
    found = run_comparison.compare_steps(steps, before, now | {"train": made("b", "2", loss=9)})
    assert found["table"].how == "follows its inputs"
    assert run_comparison.whole(found) == "differs"


@pytest.fixture
def ran(tmp_path: Path, local: LocalStub) -> tuple[str, Path]:
    """An execution with steps, and its store."""
    local.ray.make_steps = pretend()
    where = ("--store", tmp_path / "store")
    answer = ask("run", declare_steps(tmp_path / "which"), *where, "--json")
    return json.loads(answer.stdout)["execution"], tmp_path / "store"


def test_every_step_is_made_again_and_nothing_of_the_store_is_reused_or_changed(
    ran: tuple[str, Path], local: LocalStub
) -> None:
    execution, store = ran
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    (store.parent / "which" / "own.py").write_text("raise SystemExit")  # what ran is in the store
    again = ask("reproduce", execution, "--store", store)
    assert again.exit_code == 0, again.output
    assert again.stdout.count("bit for bit") == 6 + 1
    assert "overall: bit for bit" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before
    assert {path.name for path in store.parent.iterdir()} == {"which", "store"}
    local.ray.make_steps = pretend(moved=0.5)
    other = ask("reproduce", execution, "--store", store, "--json")
    assert other.exit_code == 1, "so it was made again"
    found = json.loads(other.stdout)
    assert found["whole"] == "differs"
    hows = {name: one["how"] for name, one in found["steps"].items()}
    assert hows == {
        **dict.fromkeys(("prepare", "tokens"), "bit for bit"),
        **dict.fromkeys(("train/deep", "train/wide", "evaluate"), "differs"),
        "compare": "differs",
    }


@pytest.mark.parametrize(("probed", "isolation"), [("", "bubblewrap"), ("it is not there", "")])
def test_somebody_elses_code_is_reproduced_in_isolation_where_that_works(
    ran: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    probed: str,
    isolation: str,
) -> None:
    execution, store = ran
    monkeypatch.setattr(bubblewrap, "probe", lambda: probed)
    answer = ask("reproduce", execution, "--store", store, "--into", store.parent / "again")
    assert answer.exit_code == 0, answer.output
    assert ("without isolation: it is not there" in " ".join(answer.output.split())) is bool(probed)
    again = Store(store.parent / "again")
    (name,) = record.names(again, "executions")
    begun = record.require(again, f"executions/{name}/execution", record.Execution)
    assert begun.isolation == isolation
    assert effects._isolation(begun) == (isolation or "own machine")


def test_on_other_devices_a_tolerance_applies_and_is_stated(
    ran: tuple[str, Path], local: LocalStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution, store = ran
    monkeypatch.setenv("COLUMNS", "120")
    local.ray.make_steps = pretend(moved=0.01, receipt={**RECEIPT, "device": "1 × another"})
    again = ask("reproduce", execution, "--store", store, "--into", store.parent / "again")
    assert again.exit_code == 0, again.output
    said = " ".join(again.stdout.split())
    assert "train/deep 3.0500 before, 3.0600 now" in said
    assert "compare follows its inputs" in said
    assert "overall: within the tolerance" in said
    assert "device: 1 × cpu before, 1 × another now" in said
    assert (store.parent / "again" / "steps").is_dir(), "it is kept where somebody wants it"
    twice = ask("reproduce", execution, "--store", store, "--into", store.parent / "again")
    assert (twice.exit_code, "nothing there may be reused" in twice.stderr) == (2, True)


def test_a_step_that_cannot_be_made_now_is_not_the_same(
    ran: tuple[str, Path], local: LocalStub
) -> None:
    execution, store = ran
    local.ray.make_steps = pretend(broken="train/wide")
    again = ask("reproduce", execution, "--store", store)
    assert again.exit_code == 1
    said = " ".join(again.stdout.split())
    assert "train/wide not comparable it did not run now: ValueError: no such word" in said
    assert "overall: not comparable" in said


def test_with_other_code_of_the_labs_nothing_is_run(
    ran: tuple[str, Path], local: LocalStub
) -> None:
    execution, store = ran
    path = store / f"records/executions/{execution}/execution.json"
    written = json.loads(path.read_bytes())
    written["plan"]["steps"]["tokens"]["code"]["lab:code"] = "a" * 64
    written["lab"]["commit"] = "abc123"
    path.write_bytes(to_json(written))
    again = ask("reproduce", execution, "--store", store)
    assert again.exit_code == 2
    assert "not that of commit abc123" in again.stderr
    assert "tokens: the lab's code changed" in again.stderr
    assert local.started == 1
