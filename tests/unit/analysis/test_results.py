"""The lab's own execution in the public form: exactly the listed fields, and nothing to find."""

from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.analysis import results, speedrun_file
from runner.cli.main import app
from runner.schema import record
from runner.schema.record import EnteredRun, Execution, Result
from runner.store.store import Store
from tests import synthetic
from tests.decided import KINDS
from tests.unit.analysis.test_speedrun import CLEAN

AUTHOR = record.Author(name="Ada")


def entered(seed: int = 0, **changed: object) -> EnteredRun:
    arm, peak = synthetic.planned_arm(), KINDS["cpu"].peak_flops
    made = EnteredRun(
        arm="fast",
        seed=seed,
        own=False,
        own_model=False,
        isolated=False,
        evaluated=synthetic.run(synthetic.plan(), "fast", seed, 1.5).evaluated,
        resources=record.Resources(kind="cpu", count=2),
        tokens=arm.tokens,
        parameters=arm.parameters,
        model_flops=arm.model_flops,
        seconds=100.0,
        hardware_flops=100.0 * 2 * peak,
    )
    return made.model_copy(update=changed)


def ended(*runs: EnteredRun) -> tuple[Execution, Result]:
    plan = synthetic.plan(arms={"fast": synthetic.planned_arm()})
    enters = record.Speedrun(track="small-target", author=AUTHOR)
    execution = synthetic.execution(plan.model_copy(update={"speedrun": enters}))
    at = execution.at + timedelta(seconds=200)
    return execution, Result(at=at, state="done", entered=runs)


def test_the_labs_own_runs_have_exactly_the_listed_fields_and_nothing_is_found() -> None:
    found, left = results.runs(*ended(entered(1), entered(0)))
    assert left == []
    for run in found:
        assert run.model_dump(by_alias=True).keys() == CLEAN.keys()
    assert speedrun_file.read(speedrun_file.write(found)) == found
    assert speedrun_file.audit({str(n): run for n, run in enumerate(found)}) == []
    assert "seed 0" in found[0].description
    assert found[0].bpb == pytest.approx(1.5)


def test_a_shape_of_the_labs_own_is_counted_with_all_its_switches() -> None:
    (run,), _ = results.runs(*ended(entered()))
    tied = run.model | {"tie_word_embeddings": not run.model["tie_word_embeddings"]}
    found = speedrun_file.audit({"it": run.model_copy(update={"model": tied})})
    assert "parameters" in {finding.rule for finding in found}


def test_a_run_without_a_figure_is_left_out_and_named() -> None:
    found, left = results.runs(
        *ended(
            entered(0), entered(1, evaluated=None), entered(2, seconds=None), entered(3, void="no")
        )
    )
    assert len(found) == 1
    assert left == [
        "fast, seed 1: it has no figure",
        "fast, seed 2: not known: time",
        "fast, seed 3: no",
    ]


def test_a_figure_that_the_track_does_not_believe_is_not_written() -> None:
    score = entered().evaluated
    assert score
    caught = record.Examined(positions=9, largest=2.0, void="it looks ahead")
    runs = (
        entered(0, own=True),
        entered(1, own=True, own_model=True, isolated=True),
        entered(2, evaluated=score.model_copy(update={"examined": caught})),
    )
    with pytest.raises(results.NoResults) as error:
        results.runs(*ended(*runs))
    for words in ("ran without isolation", "was not asked again", "it looks ahead"):
        assert words in str(error.value)


def test_an_execution_without_entry_or_end_is_refused_with_a_reason() -> None:
    execution, result = ended()
    with pytest.raises(results.NoResults, match="has not ended"):
        results.runs(execution, None)
    with pytest.raises(results.NoResults, match="has no run that can be written"):
        results.runs(execution, result)
    with pytest.raises(results.NoResults, match="enters no speedrun"):
        results.runs(synthetic.execution(synthetic.plan()), result)


def test_the_command_writes_the_file_and_says_where(tmp_path: Path) -> None:
    execution, result = ended(entered())
    store, out = Store(tmp_path / "store"), tmp_path / "speedrun_results.json"
    synthetic.begin(store, execution)
    record.write(store, f"executions/{execution.id}/result", result)
    at = ["--store", str(tmp_path / "store"), "--out", str(out)]
    done = CliRunner().invoke(app, ["results", execution.id, *at])
    assert done.exit_code == 0, done.output
    assert len(speedrun_file.read(out.read_bytes())) == 1
    assert "each description names the validation text of its bits per byte" in done.stderr
    assert CliRunner().invoke(app, ["results", "x" + "0" * 16, *at]).exit_code == 2
    out.write_text("mine")
    for place, words in (
        (out, f"{out} is there already; choose another name with --out, or remove it."),
        (tmp_path, f"{tmp_path} is there already"),
        (tmp_path / "a" / "b", "cannot be written: No such file or directory; choose"),
    ):
        told = CliRunner().invoke(app, ["results", execution.id, *at[:2], "--out", str(place)])
        assert (told.exit_code, words in told.stderr) == (2, True), told.stderr
    assert out.read_text() == "mine"
