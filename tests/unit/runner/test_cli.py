"""`plan` and `run` as a person types them. Ray is a stub; `test_whole_way` has the real one."""

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from bot.cli.main import app
from engine.config import memory
from engine.config.schema import ComputeConfig
from runner.analysis import power
from runner.cli import commands, local_run, main
from runner.execution import local_ray
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.integration.runner.test_worker import TINY, declare
from tests.stub_trainer import StubRay

BIG = """
title: The field's 130M
data: {source: stdlib, tokenizer: byte}
model: {hidden_dim: 512, intermediate_dim: 1792, num_layers: 6, num_heads: 8, seq_len: 4096,
        vocab_size: 128256}
train: {train_batch_size: 8, num_train_steps: 10, learning_rate: 0.001}
resources: {kind: cpu, count: 1}
seeds: [0]
arms: {only: {}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return declare(tmp_path / "tiny")


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, [str(word) for word in words])


class LocalStub:
    """What stands for a local Ray: alive, until a test says otherwise."""

    def __init__(self) -> None:
        self.ray = StubRay(pace=1)
        self.alive = True
        self.started = 0

    @contextlib.contextmanager
    def start(
        self,
        folder: Path,
        reach: dict[str, str],
    ) -> Iterator[local_ray.LocalRay]:
        assert not reach, "a store on this disk is found by its path"
        self.started += 1
        guard = SimpleNamespace(poll=lambda: None if self.alive else 1)
        yield local_ray.LocalRay("http://127.0.0.1:1", folder / "token", guard)  # type: ignore[arg-type]


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> LocalStub:
    local = LocalStub()
    monkeypatch.setattr(local_ray, "local_ray", local.start)
    monkeypatch.setattr(local_run, "RayJobs", lambda _: local.ray)
    monkeypatch.setattr(local_run, "POLL", 0.001)
    return local


def test_plan_takes_the_folder_or_the_file_and_writes_nothing(folder: Path, tmp_path: Path) -> None:
    whole = ask("plan", folder, "--store", tmp_path / "store")
    file = ask("plan", folder / "experiment.yaml", "--store", tmp_path / "store")
    assert whole.exit_code == file.exit_code == 0
    assert whole.stdout == file.stdout
    assert "2 arms × 2 seeds = 4 runs, 10,240 tokens" in whole.stdout
    assert not (tmp_path / "store").exists()


def test_plan_in_json_is_the_record_itself(folder: Path) -> None:
    answer = ask("plan", folder, "--json")
    plan = record.Plan.model_validate_json(answer.stdout)
    assert set(plan.arms) == {"slow", "fast"}
    assert plan.cost.runs == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("num_layers", "num_layer"), ["experiment.yaml, line 4", "num_layer", "did you mean"]),
        (("num_heads: 2", "num_heads: 3"), ["experiment.yaml, line 4", "num_heads", "divide"]),
        (("seeds: [0, 1]", "seeds: [0, 1"), ["experiment.yaml, line"]),
        (("words.txt", "../words.txt"), ["experiment.yaml, line 3", "source"]),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_bad_input_is_answered_on_stderr_with_file_line_and_field(
    tmp_path: Path, command: str, change: tuple[str, str], words: list[str], local: LocalStub
) -> None:
    folder = declare(tmp_path / "tiny", TINY.replace(*change))
    answer = ask(command, folder, "--store", tmp_path / "store")
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert all(word in answer.stderr for word in words), answer.stderr
    assert local.started == 0


def test_an_experiment_is_named_by_its_folder_below_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path / "experiments" / "tiny")
    monkeypatch.chdir(tmp_path)
    assert ask("plan", "tiny").stdout == ask("plan", "experiments/tiny").stdout
    answer = ask("plan", "tinny")
    assert answer.exit_code == 2
    assert answer.stderr.strip() == (
        "tinny does not exist; `experiments` has tiny; did you mean `tiny`?"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("graph", "tinny"),
        ("forecast", "tinny"),
        ("compile-check", "tinny"),
        ("compile", "tinny"),
        ("alias", "tinny", "text"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_knows_an_experiment_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    declare(tmp_path / "experiments" / "tiny")
    monkeypatch.chdir(tmp_path)
    wrong = ask(*words)
    assert wrong.exit_code == 2
    assert "tinny" in wrong.stderr
    right = ask(*("tiny" if word == "tinny" else word for word in words))
    assert "tiny does not exist" not in right.stderr
    assert "no experiment has this name" not in right.stderr


def test_a_seed_is_chosen_and_a_dry_run_is_the_plan_of_it(folder: Path, local: LocalStub) -> None:
    answer = ask("run", folder, "--seed", 1, "--dry-run")
    assert answer.exit_code == 0
    assert "2 arms × 1 seed = 2 runs" in answer.stdout
    assert local.started == 0
    assert (
        ask("run", folder, "--seed", 7, "--dry-run").stderr
        == "--seed: the plan has no seed `7`; it has 0, 1.\n"
    )
    assert "write all with --only" in ask("run", folder, "--seed", 1, "--only", "x").stderr


def test_the_newest_execution_is_latest_and_ls_lists_as_show_does(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert "has no executions yet" in ask("show", "latest", "--store", store.root).stderr
    synthetic.board(store, 3)
    newest = ask("ls", "--store", store.root, "--json")
    assert newest.stdout == ask("show", "--store", store.root, "--json").stdout
    first = json.loads(newest.stdout)[0]["execution"]
    shown = ask("show", "latest", "--store", store.root, "--json")
    assert json.loads(shown.stdout)["execution"]["id"] == first
    name = Path(json.loads(shown.stdout)["execution"]["plan"]["experiment"]).name
    named = ask("show", name, "--store", store.root, "--json")
    assert named.stdout == shown.stdout, "an experiment's name means its newest execution"


def test_a_shell_completes_experiments_and_executions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path / "experiments" / "tiny")
    monkeypatch.chdir(tmp_path)
    synthetic.board(Store("store"), 2)

    def completed(words: str, incomplete: str) -> list[str]:
        asked = {"COMP_WORDS": f"regatta {words} {incomplete}", "COMP_CWORD": "2"}
        environment = {"_REGATTA_COMPLETE": "complete_bash", **asked}
        return CliRunner().invoke(main.app, env=environment, prog_name="regatta").stdout.split()

    assert completed("plan", "ti") == ["tiny"]
    assert completed("logs", "la") == ["latest"]
    known = {one["execution"] for one in json.loads(ask("ls", "--json").stdout)}
    assert set(completed("show", "x")) == known
    monkeypatch.chdir("/")
    assert completed("show", "x") == []


def test_every_command_has_its_panel_and_the_version_is_told() -> None:
    known = [name for name, _ in get_command(app).commands.items()]
    assert sorted(known) == sorted(commands.ORDER)
    assert ask("--version").stdout.startswith("regatta ")
    assert ask("-h").stdout == ask("--help").stdout


def test_a_path_that_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    answer = ask("plan", tmp_path / "nowhere")
    assert answer.exit_code == 2
    assert "nowhere does not exist" in answer.stderr


def table(stdout: str) -> dict[str, list[str]]:
    """The rows of the last table that was printed, by their first cell."""
    rows = [line.strip("│ ").split("│") for line in stdout.splitlines() if line.startswith("│")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}


def test_plan_says_what_its_design_can_tell_as_far_as_the_store_knows(
    folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    said = " ".join(ask("plan", folder, "--store", place).stdout.split())
    assert "Statistical power unknown: the lab has run fewer than 3 comparable arms" in said
    plan = record.Plan.model_validate_json(ask("plan", folder, "--json").stdout)
    for n in range(2):
        figures = {run: 3.0 + n + 0.01 * i for i, run in enumerate(plan.runs())}
        synthetic.finish(Store(place), synthetic.execution(plan, str(n), pull=None), figures)
    said = " ".join(ask("plan", folder, "--store", place).stdout.split())
    spread = record.Spread(deviation=0.01 / math.sqrt(2), arms=4, freedom=4)
    assert power.known(spread, 2) in said
    assert "comparable runs: 0.0071 (standard deviation, 4 arms)" in said


def test_plan_says_what_a_device_holds(folder: Path) -> None:
    said = ask("plan", folder).stdout
    arms = record.Plan.model_validate_json(ask("plan", folder, "--json").stdout).arms
    assert "memory of one device of 1 × CPU, 2 cores" in said
    rows = table(said)
    held = memory.footprint(arms["fast"].model, arms["fast"].train, ComputeConfig(), "cpu")
    assert rows["parameters"] == [memory.size(4 * arms["fast"].parameters)]
    assert rows["all"] == [memory.size(held.total)]
    assert not any(name.startswith("of ") for name in rows), "what a CPU's machine has is unknown"


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "FOLDER"),
        ("run", "FOLDER"),
        ("show", "x"),
        ("results", "x"),
        ("replay", "x"),
        ("reproduce", "x"),
        ("forecast", "--at", "1e9"),
        ("key", "revoke", "x"),
        ("store", "ls"),
        ("plan", "FOLDER", "--store", "THERE", "--jobs"),
    ],
)
def test_a_store_that_is_a_file_is_said_to_be_no_folder(
    folder: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file, there = tmp_path / "file", tmp_path / "there"
    file.write_text("")
    there.mkdir()
    asked = [{"FOLDER": str(folder), "THERE": str(there)}.get(word, word) for word in words]
    answer = ask(*asked, *(["--store"] if words[-1] != "--jobs" else []), file)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert f"{file} is no folder, and a store is one; name another store" in answer.stderr
    assert file.read_text() == ""


def test_plan_says_for_a_described_slice_what_its_devices_hold(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(BIG)
    alone, eight = (table(ask("plan", tmp_path, "--slice", n).stdout) for n in ("h100x1", "h100x8"))
    assert alone["parameters"] == ["588 MiB"]
    assert eight["parameters"] == ["73.5 MiB"], "fsdp takes all eight"
    arm = record.Plan.model_validate_json(ask("plan", tmp_path, "--json").stdout).arms["only"]
    held = memory.footprint(arm.model, arm.train, ComputeConfig(dtype="bfloat16"), "gpu")
    assert alone["all"] == [memory.size(held.total)]
    assert alone["of 80 GiB"] == [f"{held.total / 2**30 / 80 * 100:.3g} %"]
    copies = ask("plan", tmp_path, "--slice", "h100x8", "--mesh", "data=8").stdout
    assert "memory of one device of 8 × NVIDIA H100 SXM (data 8)" in copies
    assert table(copies)["parameters"] == ["588 MiB"], "each has all of them"


def test_plan_says_what_does_not_fit_and_what_would(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(BIG.replace("batch_size: 8,", "batch_size: 64,"))
    said = " ".join(ask("plan", tmp_path, "--slice", "v5ex1").stdout.split())
    assert "only does not fit: one device needs " in said
    assert "and one TPU v5e has 16 GiB" in said
    assert "or fsdp: 8 on 8 times the devices (" in said
    parts = said.partition("gradient_accumulation_steps: ")[2].split()[0]
    parted = BIG.replace("batch_size: 8,", f"batch_size: 64, gradient_accumulation_steps: {parts},")
    (tmp_path / "experiment.yaml").write_text(parted)
    assert "does not fit" not in ask("plan", tmp_path, "--slice", "v5ex1").stdout


def test_plan_warns_of_a_model_that_this_machine_cannot_hold(tmp_path: Path) -> None:
    huge = BIG.replace("hidden_dim: 512", "hidden_dim: 65536").replace("1792", "262144")
    (tmp_path / "experiment.yaml").write_text(huge)
    said = " ".join(ask("plan", tmp_path).stdout.split())
    assert "only does not fit: one device needs " in said
    assert "and this machine has " in said
    assert " times too much); make the model or the batch smaller" in said


def test_plan_says_in_what_the_arms_differ_and_the_whole_time_before_memory(
    folder: Path, tmp_path: Path
) -> None:
    said = ask("plan", folder, "--store", tmp_path / "store").stdout
    header = next(line for line in said.splitlines() if "┃ arm" in line)
    assert header.split()[1:4] == ["arm", "┃", "learning_rate"]
    words = " ".join(said.split())
    assert "expected time: about " in words
    assert " training (8 s to start and end each step, as measured on two cores)" in words
    assert words.index("expected time") < words.index("memory of one device")


def test_plan_shows_the_arms_that_need_most(tmp_path: Path) -> None:
    arms = "".join(f"  wide{n}: {{model: {{intermediate_dim: {8 * n}}}}}\n" for n in range(1, 8))
    folder = declare(tmp_path / "many", TINY.partition("arms:")[0] + "arms:\n" + arms)
    said = ask("plan", folder).stdout
    assert "3 more need less" in said
    shown = next(line for line in said.splitlines() if line.startswith("┃  ") and "wide7" in line)
    assert [name.strip() for name in shown.strip("┃ ").split("┃")] == [
        "wide7", "wide6", "wide5", "wide4"
    ]  # fmt: skip


def test_a_mesh_that_divides_nothing_is_bad_input_to_plan(folder: Path) -> None:
    answer = ask("plan", folder, "--mesh", "tensor=3")
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert "`model.num_heads`: tensor 3 does not divide num_heads 2" in answer.stderr


def test_a_cluster_is_named_by_address_and_token_file_together(
    folder: Path, tmp_path: Path
) -> None:
    answer = ask("run", folder, "--store", tmp_path / "store", "--ray-address", "http://x")
    assert answer.exit_code == 2
    assert "--ray-token-file" in answer.stderr


def test_a_store_that_cannot_be_used_is_bad_input(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    answer = ask("run", folder, "--store", tmp_path / "store")
    assert answer.exit_code == 2
    assert "--store" in answer.stderr


# What talks with a person, runs until it is stopped, prints a log, or prints JSON in any case.
WITHOUT_JSON = {"chat", "demo", "handle", "init", "logs", "mcp", "sandbox", "schema", "serve"}


def every_command(of: Any, path: str = "") -> dict[str, Any]:
    """Every command by its words."""
    if not hasattr(of, "commands"):
        return {path.strip(): of}
    return {
        name: one
        for part, inner in of.commands.items()
        for name, one in every_command(inner, f"{path} {part}").items()
    }


def test_every_command_that_prints_results_can_print_json() -> None:
    every = every_command(get_command(app))
    without = {
        name for name, one in every.items() if not any("--json" in x.opts for x in one.params)
    }
    assert without == WITHOUT_JSON & every.keys()


def test_the_problems_of_a_declaration_are_json_where_one_asks_for_it(folder: Path) -> None:
    file = folder / "experiment.yaml"
    text = file.read_text().replace("learning_rate: 0.01,", "learning_rat: 0.01,")
    line = next(n for n, x in enumerate(text.splitlines(), 1) if "learning_rat:" in x)
    file.write_text(text)
    for command in ("plan", "run"):
        answer = ask(command, folder, "--json", "--store", folder / "none")
        assert answer.exit_code == 2
        (problem,) = json.loads(answer.stdout)["problems"]
        assert problem["file"] == str(file)
        assert (problem["line"], problem["field"]) == (line, "train.learning_rat")
        assert "did you mean" in problem["message"]
        assert "did you mean" in answer.stderr, "and a person reads it as ever"
