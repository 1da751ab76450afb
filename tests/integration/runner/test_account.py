"""What is on record of an execution, as `show` and `diff` tell it."""

import io
import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from runner.cli import execution_view
from runner.execution.device_usage import of_steps
from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.schema.record import Execution, PlannedStep, Resources, Result, Source, StepEnd
from runner.store import artifacts
from runner.store.store import Store
from tests import synthetic
from tests.decided import KINDS
from tests.integration.runner.test_worker import declare as declare_arms
from tests.pretended import DECLARED, RECEIPT, declare, pretend
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import local as local  # a fixture

FASTER = DECLARED.replace("learning_rate: 0.01", "learning_rate: 0.02")


def run(folder: Path, store: Path) -> str:
    answer = ask("run", folder, "--store", store, "--json")
    return str(json.loads(answer.stdout)["execution"])


def words(*command: object) -> str:
    answer = ask(*command)
    assert answer.exit_code == 0, answer.output
    return " ".join(answer.stdout.split())


@pytest.fixture
def two(tmp_path: Path, local: LocalStub) -> tuple[Path, str, str]:
    """A store with two executions: between them a learning rate, a library and a comment."""
    folder, store = declare(tmp_path / "which"), tmp_path / "store"
    local.ray.make_steps = pretend()
    first = run(folder, store)
    declare(folder, "# Faster.\n" + FASTER)
    local.ray.make_steps = pretend(receipt={**RECEIPT, "jax": "0.11.0"})
    return store, first, run(folder, store)


def test_run_ends_with_what_the_last_step_wrote_what_was_found_and_the_next_command(
    tmp_path: Path, local: LocalStub
) -> None:
    folder, store = declare(tmp_path / "which"), tmp_path / "store"
    local.ray.make_steps = pretend()
    answer = ask("run", folder, "--store", store)
    assert answer.exit_code == 0, answer.output
    lines = [line.strip() for line in answer.stdout.splitlines()]
    written = next(n for n, line in enumerate(lines) if line.startswith("compare: /"))
    assert Path(lines[written].removeprefix("compare: ")).name == "table.md"
    assert "| train/deep | 3.0500 |" in lines[written:]
    assert "(unsigned, no approval)" in lines[-2]
    assert lines[-1].startswith("deep scores 3.0500 bits per byte")
    assert f"next: regatta show {lines[-2].split()[0]} --store {store}" in answer.stderr


def test_show_says_who_ran_what_when_where_and_what_came_out(two: tuple[Path, str, str]) -> None:
    store, first, second = two
    said = words("show", second, "--store", store)
    for part in (
        f"{second} done, started 20",
        "unsigned, no approval",
        "not in a git checkout, tree ",
        "requirements.lock ",
        "ran on 1 × cpu, A CPU",
        "with python 3.11.7, jax 0.11.0",
        "device-seconds of cpu (no price); nothing for 2 cached steps",
        "evaluate: bits per byte on 64 validation tokens, lower is better",
        "train/deep 3.1000 train/wide 3.2000",
        "| arm | bits per byte | | train/deep | 3.1000 | | train/wide | 3.2000 |",
        "prepare own:prepare as small-2026-11",
        f"cached from {first}, under 1 s on",
        "train/wide train input tokens tokens config that of train/deep, except "
        "model.head_dim 8 model.hidden_dim 16 model.num_layers 1 code",
    ):
        assert part in said, part
    ends = json.loads(ask("show", second, "--store", store, "--json").stdout)["steps"]
    made = store / ends["compare"]["folder"]
    assert f" compare: {made}/table.md | arm" in said  # no path is broken where a line ends
    assert f" files table.md in {made}" in said


@pytest.mark.parametrize("command", ["show", "graph", "reproduce", "replay", "results"])
def test_an_execution_is_meant_by_the_beginning_of_its_id(
    two: tuple[Path, str, str], command: str
) -> None:
    store, first, second = two
    short, whole = (ask(command, id, "--store", store) for id in (first[:12], first))
    assert (short.exit_code, short.stdout) == (whole.exit_code, whole.stdout)
    assert command == "graph" or first in short.output
    for unclear, words in (
        ("x", f"x begins the ids of {', '.join(sorted((first, second)))}; write more of the one"),
        (f"{first}0", f"{store} has no execution or experiment {first}0; `regatta ls` lists"),
    ):
        answer = ask(command, unclear, "--store", store)
        assert (answer.exit_code, words in answer.stderr) == (2, True), answer.output


def test_show_without_an_execution_lists_them(two: tuple[Path, str, str]) -> None:
    store, first, second = two
    said = ask("show", "--store", store).stdout.splitlines()
    assert said[0].split() == ["execution", "started", "(UTC)", "state", "commit", "experiment"]
    assert [line.split()[0] for line in said[1:]] == [second, first]
    assert said[1].split()[3:] == ["done", "which"]
    one, _ = json.loads(ask("show", "--store", store, "--json").stdout)
    assert (one["execution"], one["state"], one["commit"]) == (second, "done", "")
    assert one["experiment"] == str(store.parent / "which")


def test_show_says_that_the_store_is_empty(tmp_path: Path) -> None:
    Store(tmp_path / "store")
    assert "has no executions yet" in words("show", "--store", tmp_path / "store")


def test_a_folder_of_any_name_stays_on_its_line() -> None:
    line = execution_view.Line("x1", "2026-01-01T00:00", "done", "", False, "a/\x1b[2J\n[b]b")
    console = Console(width=90, record=True, file=io.StringIO())
    console.print(execution_view.listing([line]))
    said = console.export_text().splitlines()
    assert [row.split()[-1] for row in said] == ["experiment", "\\x1b[2J\\n[b]b"]


def test_the_newest_executions_are_listed_with_their_commits(tmp_path: Path) -> None:
    store, plan = Store(tmp_path / "store"), synthetic.plan()
    begun = [synthetic.START + timedelta(minutes=n) for n in range(25)]
    ran = [synthetic.execution(plan, str(n), at=at) for n, at in enumerate(begun)]
    source = Source(tree="b" * 40, commit="c" * 40, changed=True)
    ran[-1] = ran[-1].model_copy(update={"origin": None, "source": source})
    for one in ran:
        synthetic.begin(store, one)
    said = ask("show", "--store", store.root).stdout.splitlines()
    assert [line.split()[0] for line in said[1:-2]] == [one.id for one in ran[:4:-1]]
    assert said[1].split()[3:] == ["unfinished", "ccccccc+", "warm-rate"]
    origin = ran[-2].origin
    assert origin
    assert origin.commit[:7] in said[2].split()
    assert said[-2:] == [
        "+ with uncommitted changes",
        "and 5 older ones; --json lists all",
    ]
    assert len(json.loads(ask("show", "--store", store.root, "--json").stdout)) == 25


def test_show_in_json_has_every_digest(two: tuple[Path, str, str]) -> None:
    store, _, second = two
    found = json.loads(ask("show", second, "--store", store, "--json").stdout)
    execution = Execution.model_validate(found["execution"])
    assert execution.lab
    assert execution.lab.lock_sha256
    assert execution.source
    assert len(execution.source.tree) == 40
    for name, step in execution.plan.steps.items():
        end = StepEnd.model_validate(found["steps"][name])
        assert end.state == ("cached" if name in ("prepare", "tokens") else "made")
        assert end.output_sha256
        assert end.made_at
        assert end.host
        assert end.receipt["device"] == "1 × cpu"
        assert step.code
    assert Result.model_validate(found["result"]).used[0].kind == "cpu"
    assert found["scores"]["evaluate"]["train/wide"]["bpb"] == pytest.approx(3.2)
    assert {run["arm"] for run in found["runs"]} == {"deep", "wide"}
    assert list(found["files"]["compare"]) == ["table.md"]


def test_diff_says_what_moved_why_and_what_no_fingerprint_covers(
    two: tuple[Path, str, str],
) -> None:
    store, first, second = two
    said = words("diff", first, second, "--store", store)
    for part in (
        "train/deep 3.0500 3.1000 +0.0500",
        "step what differs train/deep train.learning_rate 0.01 → 0.02 train/wide",
        "compare input scores: evaluate changed Also",
        "the experiment's folder: ",
        "jax: 0.10.2 before, 0.11.0 now (train/deep, train/wide, evaluate, compare)",
    ):
        assert part in said, part
    assert "the lab's code" not in said
    found = json.loads(ask("diff", first, second, "--store", store, "--json").stdout)
    assert list(found["steps"]) == ["train/deep", "train/wide", "evaluate", "compare"]
    assert found["figures"]["train/wide"] == pytest.approx([3.1, 3.2])
    assert words("diff", first, first, "--store", store).startswith("score of")
    assert "with the same fingerprints." in words("diff", first, first, "--store", store)


def test_diff_names_the_labs_code_where_it_is_another(
    two: tuple[Path, str, str],
) -> None:
    store, first, _ = two
    path = store / f"records/executions/{first}/execution.json"
    written = json.loads(path.read_bytes())
    written["lab"] |= {"code_sha256": "e" * 64, "lock_sha256": None, "commit": "abc123"}
    path.write_bytes(to_json(written))
    said = words("diff", first, store.parent / "which", "--store", store)
    assert "the lab's code: eeeeeeeeeeeeeeee of commit abc123" in said
    assert "the lab's requirements.lock: none → " in said


def test_an_output_that_was_changed_is_said_and_not_shown(two: tuple[Path, str, str]) -> None:
    store, _, second = two
    for path in store.glob("steps/which.evaluate/*/1-*/scores.json"):
        path.write_text(path.read_text().replace("3.", "1."))
    said = words("show", second, "--store", store)
    assert "evaluate: it is not the file that was made" in said
    assert "train/deep 1." not in said


def test_show_says_whether_output_files_are_missing_or_damaged(two: tuple[Path, str, str]) -> None:
    store, _, second = two
    steps = record.require(Store(store), f"executions/{second}/execution", Execution).plan.steps
    place = {x: store / "steps" / step.store / step.fingerprint[:16] for x, step in steps.items()}
    for folder in (place["prepare"], place["tokens"], *place["compare"].glob("1-*")):
        shutil.rmtree(folder)
    step = steps["prepare"]
    artifacts.make(Store(store), step.store, step.fingerprint, lambda _: None, {})
    said = words("show", second, "--store", store)
    of = {name: said.rpartition(f" {name} {step.do} ")[2] for name, step in steps.items()}
    for name, files in (
        ("prepare", "none"),
        ("tokens", "deleted"),
        ("compare", "changed since"),
        ("evaluate", "scores.json"),
    ):
        assert of[name].partition(" files files ")[2].startswith(f"{files} in "), name


@pytest.mark.parametrize(
    ("receipt", "words"),
    [
        ({"device": "1 × cpu", "cpu": "A CPU", "affinity": "0"}, "1 × cpu, A CPU, 1 cores"),
        ({"cpu": "A CPU", "affinity": "0,1"}, "A CPU, 2 cores"),
        ({}, "unknown"),
    ],
)
def test_a_receipt_says_no_more_of_a_device_than_it_knows(
    receipt: dict[str, str], words: str
) -> None:
    assert execution_view._device(receipt) == words


def test_a_processor_is_named_once_where_some_steps_used_a_device_of_it() -> None:
    receipts = [{"cpu": "A"}, {"device": "1 × cpu", "cpu": "A"}, {"cpu": "B"}]
    assert execution_view._devices(receipts) == ["1 × cpu, A", "B"]


def test_an_execution_of_an_older_lab_is_shown_with_its_runs(tmp_path: Path) -> None:
    store, plan = Store(tmp_path / "store"), synthetic.plan().model_copy(update={"steps": {}})
    execution = synthetic.execution(plan)
    synthetic.begin(store, execution)
    for arm, seed in plan.runs():
        found = synthetic.run(plan, arm, seed, 2.5, execution=execution.id)
        record.write(store, f"runs/{execution.id}.{record.run_name(arm, seed)}", found)
    said = words("show", execution.id, "--store", store.root)
    assert "unfinished" in said
    assert "approved by grace" in said.lower()
    assert "lab unknown" in said
    assert "fast, seed 0 2.5000 finished" in said


def test_the_device_use_of_arms_is_recorded(tmp_path: Path, local: LocalStub) -> None:
    assert local.started == 0
    execution = run(declare_arms(tmp_path / "tiny"), tmp_path / "store")
    found = json.loads(ask("show", execution, "--store", tmp_path / "store", "--json").stdout)
    [used] = Result.model_validate(found["result"]).used
    assert used.kind == "cpu"
    assert used.device_seconds == 6 * 10, "of each step as long as its maker says"
    assert len(found["runs"]) == 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"id": 7}', "kind Execution: `id`: Input should be a valid string. Records are never"),
        (
            "{",
            "kind Execution: Invalid JSON: EOF while parsing an object at line 1 column 1. Records",
        ),
    ],
)
def test_a_record_that_is_none_is_told_in_a_sentence(
    tmp_path: Path, content: str, words: str
) -> None:
    store, execution = Store(tmp_path / "store"), synthetic.execution(synthetic.plan())
    synthetic.begin(store, execution)
    path = store.local(f"records/executions/{execution.id}/execution.json")
    path.write_text(content)
    answer = ask("results", execution.id, "--store", store.root)
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"{path} is not a record of the ")
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_record_from_before_is_still_read() -> None:
    plan = synthetic.plan()
    for kind, one, later in (
        (Execution, synthetic.execution(plan), {"lab", "source"}),
        (Result, Result(at=synthetic.START, state="done"), {"used"}),
        (record.Cost, plan.cost, {"device_seconds"}),
    ):
        before = {key: of for key, of in json.loads(one.canonical()).items() if key not in later}
        assert kind.model_validate_json(json.dumps(before)) == one


# ── What was used ────────────────────────────────────────────────────────────────────────────


def step(kind: str, count: int = 1) -> PlannedStep:
    return PlannedStep(
        do="m:f",
        function="m:f",
        config={},
        code={},
        resources=Resources(kind=kind, count=count),
        fingerprint="a" * 64,
        store="x",
    )


def test_device_seconds_are_those_of_what_was_made_by_kind_and_priced() -> None:
    priced = {**KINDS, "h100": replace(KINDS["h100"], price=3.6)}  # when it was planned
    plan = synthetic.plan().model_copy(update={"devices": priced})
    steps = {name: step(kind) for name, kind in (("a", "cpu"), ("b", "h100"), ("c", "h100"))}
    ends = {
        "a": StepEnd(state="made", seconds=5),
        "b": StepEnd(state="made", seconds=1000),
        "c": StepEnd(state="cached", seconds=9000),
    }
    cpu, h100 = of_steps(plan.model_copy(update={"steps": steps}), ends)
    assert (cpu.kind, cpu.device_seconds, cpu.price) == ("cpu", 5, None)
    assert (h100.kind, h100.device_seconds, h100.price) == ("h100", 1000, 1.0)
    four = {"d": step("h100", count=4)}
    [used] = of_steps(
        plan.model_copy(update={"steps": four}), {"d": StepEnd(state="made", seconds=250)}
    )
    assert (used.device_seconds, used.price) == (1000, 1.0)
