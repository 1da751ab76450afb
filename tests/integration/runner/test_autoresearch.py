"""`regatta search` with a stub trainer: a program proposes, each trial is a record, the best is
compared with the baseline."""

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import yaml
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from runner.cli import local_run, main, search
from runner.execution.lifecycle import Facts
from runner.planning import search_limits
from runner.schema import record
from runner.schema.lab_config import defaults
from runner.store.store import Store
from tests.integration.runner.test_worker import TINY, declare
from tests.stub_trainer import StubRay

ONE = TINY.replace("  slow: {train: {learning_rate: 0.0001}}\n  fast: {}\n", "  only: {}\n")
COORDINATE = Path(__file__).parents[3] / "examples/search/coordinate.py"
GRID = "train.learning_rate=0.001,0.01,0.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return declare(tmp_path / "tiny", ONE)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> StubRay:
    """A Ray whose models score by their learning rate: the highest is the best."""
    stub = StubRay()
    monkeypatch.setattr(local_run, "RayJobs", lambda _: stub)
    monkeypatch.setattr(local_run, "POLL", 0.001)
    monkeypatch.setattr(local_run, "reaching", lambda *_: contextlib.nullcontext(None))
    monkeypatch.setattr(local_run, "missing_devices", lambda _: None)

    def scores(spec: Any, step: record.PlannedStep) -> dict[str, object]:
        for arm in spec.plan.arms.values():
            stub.bpb = lambda _, seed, rate=arm.train.learning_rate: (
                2.0 - 10 * min(rate, 0.03) + 0.001 * (seed % 7)
            )
        return StubRay._scores(stub, spec, step)

    stub._scores = scores  # type: ignore[method-assign]
    return stub


@pytest.fixture
def proposals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the program answers, in order; and, afterwards, what it was asked."""
    answers: list[Any] = []
    asked: list[Any] = []

    def answer(_: object, said: bytes) -> str:
        asked.append(json.loads(said))
        return answers[len(asked) - 1] if len(asked) <= len(answers) else ""

    monkeypatch.setattr(search, "answer", answer)
    answers_and_asked: list[Any] = [answers, asked]
    return answers_and_asked


def ask(folder: Path, *words: object) -> Result:
    given = ["search", folder, "--store", folder / "store", "--noise", 3, *words]
    return CliRunner().invoke(main.app, [str(word) for word in given])


def with_rate(rate: float) -> str:
    return ONE.replace("learning_rate: 0.01", f"learning_rate: {rate}")


@pytest.mark.usefixtures("trainer")
def test_a_search_measures_the_noise_first_and_compares_the_best_with_fresh_seeds(
    folder: Path, proposals: list[Any]
) -> None:
    answers, asked = proposals
    answers += [with_rate(0.001), with_rate(0.02), with_rate(0.015)]
    answer = ask(folder, "--budget", 3, "--propose", "program --option", "--json")
    assert answer.exit_code == 0, answer.stderr
    found = json.loads(answer.stdout)
    terms, trials, end = found["terms"], found["trials"], found["end"]
    assert terms["proposer"] == ["program", "--option"]
    assert terms["noise_seeds"] == [1000, 1001, 1002]
    assert [len(trial["scores"]) for trial in trials] == [3, 2, 2, 2]
    first = asked[0]
    assert [one["n"] for one in first["trials"]] == [0], "it is asked when the noise is known"
    assert first["noise"] == pytest.approx(stdev((0.006, 0.0, 0.001)))
    assert (first["metric"], first["better"], first["trials_left"]) == ("eval/bpb", "lower", 3)
    assert asked[2]["trials"][2]["difference"] < 0
    assert end["why"] == "the budget of 3 trials is spent"
    assert end["compared"]["n"] == 2
    assert end["compared"]["difference"] == pytest.approx(-0.1)
    assert end["compared"]["p"] < 0.001
    # Each trial is an execution of the store, and so are the two of the comparison.
    store = Store(folder / "store")
    executions = {trial["execution"] for trial in trials} | {*end["compared"]["executions"]}
    assert executions == set(record.names(store, "executions"))
    assert len(executions) == 6
    fresh = record.require(
        store, f"executions/{end['compared']['executions'][1]}/execution", record.Execution
    )
    assert fresh.plan.seeds == (2000, 2001, 2002)
    kept = record.require(store, f"searches/{found['search']}/2", record.SearchTrial)
    assert kept.declaration == answers[1]
    assert (
        "trial 2 beats the baseline by 0.100 bits per byte"
        in ask(folder, "--budget", 3, "--propose", "program --option").stdout
    ), "and the same command shows what was found, without another run"
    assert len(record.names(store, "executions")) == 6


@pytest.mark.usefixtures("trainer")
def test_what_the_program_writes_is_data_and_what_cannot_be_compared_is_refused(
    folder: Path, proposals: list[Any]
) -> None:
    answers, asked = proposals
    answers += [
        ONE.replace("learning_rate: 0.01", "learning_rat: 0.01"),
        ONE.replace("hidden_dim: 16", "hidden_dim: 64"),
        ONE.replace("tokens: 256", "tokens: 128"),
        "!!python/object/apply:os.system ['touch pwned']\n",
        with_rate(0.02),
        with_rate(0.02) + "# a comment\n",
        ONE,
        ONE + "own: {model: 'model:forward'}\n",
    ]
    answer = ask(folder, "--budget", 9, "--propose", "program", "--json")
    assert answer.exit_code == 0, answer.stderr
    refused = [trial["refused"] for trial in json.loads(answer.stdout)["trials"]]
    assert "learning_rat" in refused[1]
    assert "times the FLOPs of a baseline's run" in refused[2]
    assert "`data` and `eval` must stay" in refused[3]
    assert "the tag" in refused[4]
    assert refused[5] == ""
    assert refused[6] == "trial 5 was the same"
    assert refused[7] == "it is the baseline"
    assert refused[8]
    assert asked[2]["trials"][2]["refused"] == refused[2], "the program reads why"
    assert not (folder / "pwned").exists()
    end = json.loads(answer.stdout)["end"]
    assert end["why"] == "the program had nothing more to propose"


def test_a_command_with_a_secret_is_not_published(folder: Path) -> None:
    refused = ask(folder, "--budget", 1, "--propose", "program --api-key=12345")
    assert refused.exit_code == 2
    assert "--propose names the secret api-key, and the lab publishes this command" in (
        " ".join(refused.stderr.split())
    )
    assert not (folder / "store").exists()


@pytest.mark.usefixtures("trainer")
def test_a_search_that_was_stopped_goes_on_with_the_same_command(
    folder: Path, proposals: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = proposals
    answers += [with_rate(0.001), with_rate(0.02)]
    real = search.answer

    def fails(program: tuple[str, ...], said: bytes) -> str:
        if len(asked) == 1:
            raise search.CannotPropose("program ended with exit code 3")
        return real(program, said)

    monkeypatch.setattr(search, "answer", fails)
    stopped = ask(folder, "--budget", 2, "--propose", "program")
    assert stopped.exit_code == 1
    assert "program ended with exit code 3. The search s" in stopped.stderr
    store = Store(folder / "store")
    assert len(record.names(store, "executions")) == 2
    monkeypatch.setattr(search, "answer", real)
    found = json.loads(ask(folder, "--budget", 2, "--propose", "program", "--json").stdout)
    assert [trial["n"] for trial in found["trials"]] == [0, 1, 2]
    assert len(asked) == 2, "nothing is asked again"


@pytest.mark.usefixtures("trainer")
def test_a_trial_that_was_cancelled_is_tried_again_by_the_same_command(
    folder: Path, proposals: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, _ = proposals
    answers += [with_rate(0.001), with_rate(0.001), with_rate(0.02)]  # the first is asked twice
    real, begun = local_run.execute, list[str]()

    def cancels_the_second(store: Store, planned: record.Plan, *others: Any) -> Facts:
        if len(begun) == 1:
            begun.append(name := local_run.begin(store, planned, Console(quiet=True)))
            ended = record.require(store, f"executions/{begun[0]}/result", record.Result)
            ended = ended.model_copy(update={"state": "cancelled"})
            record.write(store, f"executions/{name}/result", ended)
            execution = record.require(store, f"executions/{name}/execution", record.Execution)
            return Facts(execution, (), None, None, ended)
        facts = real(store, planned, *others)
        begun.append(facts.execution.id)
        return facts

    monkeypatch.setattr(local_run, "execute", cancels_the_second)
    stopped = ask(folder, "--budget", 2, "--propose", "program")
    assert stopped.exit_code == 1
    assert f"{begun[1]} was cancelled. The search continues with the same" in stopped.stderr
    found = json.loads(ask(folder, "--budget", 2, "--propose", "program", "--json").stdout)
    assert [trial["n"] for trial in found["trials"]] == [0, 1, 2]
    assert len(set(begun)) == len(begun), "as an execution of its own"


@pytest.mark.usefixtures("trainer")
def test_the_shipped_program_descends_by_coordinates(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, with what it would read on stdin."""
    program = runpy.run_path(str(COORDINATE))["main"]

    def answer(words: tuple[str, ...], said: bytes) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(said.decode()))
        return str(program(list(words[1:])))

    monkeypatch.setattr(search, "answer", answer)
    found = json.loads(ask(folder, "--budget", 6, "--propose", f"program {GRID}", "--json").stdout)
    rates = [
        yaml.safe_load(trial["declaration"])["train"]["learning_rate"] for trial in found["trials"]
    ]
    assert rates == [0.01, 0.001, 0.1]
    assert found["end"]["why"] == "the program had nothing more to propose"
    assert found["end"]["compared"]["n"] == 2


def test_a_baseline_with_two_arms_or_a_study_is_refused(folder: Path) -> None:
    for text, words in (
        (TINY, "a search compares single arms, and this has 2"),
        (f"{ONE}preregistration: 1\n", "take `preregistration` out"),
    ):
        (folder / "experiment.yaml").write_text(text)
        answer = ask(folder, "--budget", 3, "--propose", "program")
        assert answer.exit_code == 2
        assert words in answer.stderr


def test_own_code_is_refused_unless_the_baseline_has_some(folder: Path) -> None:
    seeds = (1000, 1001)
    base = search_limits.plan(ONE, folder, seeds, defaults())
    own = base.model_copy(update={"compiled": True})
    assert (
        search_limits.misfit(base, own, 1.0) == "the baseline has no own code, so a trial has none"
    )
    assert search_limits.misfit(own, own, 1.0) is None
    assert search_limits.misfit(base, base, 1.0) is None
