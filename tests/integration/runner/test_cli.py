"""Of `test_cli.py` what needs a process, a socket or a compilation."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.cli import local_run
from runner.execution import effects, local_ray
from runner.execution.ray_jobs import RayAddress, RayError
from runner.lib import accelerators
from runner.schema import record
from runner.store.store import Store
from tests.integration.runner.test_worker import TINY, declare
from tests.machines import a_gpu
from tests.stub_trainer import steady_bpb
from tests.unit.runner.test_cli import BIG, LocalStub, ask
from tests.unit.runner.test_cli import folder as folder  # a fixture
from tests.unit.runner.test_cli import local as local  # a fixture

# ── plan ─────────────────────────────────────────────────────────────────────────────────────


def test_plan_counts_as_the_field_does_and_imports_no_jax(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(BIG)
    code = (
        "import sys; from typer.testing import CliRunner; from runner.cli import main as cli\n"
        "run = CliRunner().invoke\n"
        f"print(run(cli.app, ['plan', {str(tmp_path)!r}, '--json']).stdout)\n"
        f"answer = run(cli.app, ['plan', {str(tmp_path)!r}])\n"
        "print(answer.stdout, *{'jax', 'ray', 'tensorstore', 'flax'} & sys.modules.keys())\n"
    )
    environment = {**os.environ, "COLUMNS": "120"}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert "154,147,328" in said
    assert '"forward_flops_per_token": 227868672' in said
    assert said.split()[-2] == "fingerprint"  # and no forbidden module after it


# ── run ──────────────────────────────────────────────────────────────────────────────────────


def test_run_ends_with_a_table_what_was_found_and_the_next_command(
    folder: Path, tmp_path: Path, local: LocalStub
) -> None:
    answer = ask("run", folder, "--store", tmp_path / "store")
    assert answer.exit_code == 0, answer.output
    assert "2.405" in answer.stdout  # mean of 2.40 and 2.41
    assert "3.205" in answer.stdout
    assert "2 of 2" in answer.stdout
    ended, found = answer.stdout.splitlines()[-2:]
    assert "done" in ended
    assert "(unsigned, no approval)" in ended
    assert found == "fast beats slow by 0.8000 bits per byte (95 % CI 0.8000 to 0.8000, 2 seeds)."
    id = ended.split()[0]
    assert f"next: regatta show {id} --store {tmp_path / 'store'}, or regatta site" in answer.stderr
    assert "training (t1)" in answer.stderr
    assert local.started == 1


def test_only_some_of_the_arms_and_seeds_are_run(
    folder: Path, tmp_path: Path, local: LocalStub
) -> None:
    words = ("run", folder, "--store", tmp_path / "store", "--json", "--only")
    some = ask(*words, "arms=fast seeds=1")
    assert [(run["arm"], run["seed"]) for run in json.loads(some.stdout)["runs"]] == [("fast", 1)]
    none = ask(*words, "arms=fats")
    assert none.exit_code == 2
    assert "--only: the plan has no arm `fats`; write `fast`." in none.stderr
    assert local.started == 1


def test_run_in_json_keeps_stdout_to_the_answer(
    folder: Path, tmp_path: Path, local: LocalStub
) -> None:
    local.ray.die_after = {"t1": 5}
    answer = json.loads(
        (told := ask("run", folder, "--store", tmp_path / "store", "--json")).stdout
    )
    assert answer["approval"] == "none"
    assert answer["result"]["state"] == "done"
    assert {
        run["seed"]: run["evaluated"]["bpb"] for run in answer["runs"] if run["arm"] == "fast"
    } == {seed: steady_bpb("fast", seed) for seed in (0, 1)}
    assert "t1 lost: its job crashed" in told.stderr


def test_a_finished_plan_runs_again_as_another_execution(
    folder: Path, tmp_path: Path, local: LocalStub
) -> None:
    del local  # it is the fixture's effect that counts
    store = tmp_path / "store"
    names = [json.loads(ask("run", folder, "--store", store, "--json").stdout) for _ in range(2)]
    first, second = (answer["execution"] for answer in names)
    assert first != second
    answer = ask("plan", folder, "--store", store)
    assert f"already run as {first}: done" in answer.stdout
    assert f"already run as {second}: done" in answer.stdout


def test_an_unfinished_execution_is_gone_on_with(
    folder: Path, tmp_path: Path, local: LocalStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"

    act = effects.act

    def die(*what: Any) -> None:
        act(*what)
        local.alive = False

    with monkeypatch.context() as patched:
        patched.setattr(effects, "act", die)
        first = ask("run", folder, "--store", store)
    assert first.exit_code == 1
    assert "The local Ray ended" in first.stderr
    local.alive = True
    second = ask("run", folder, "--store", store)
    assert second.exit_code == 0
    assert ": continued (unsigned" in second.stderr
    assert len(record.names(Store(store), "executions")) == 1


def test_a_failed_execution_says_why_and_exits_with_1(
    folder: Path, tmp_path: Path, local: LocalStub
) -> None:
    local.ray.die_after = dict.fromkeys(("t1", "t2", "t3", "t4"), 1)
    local.ray.saves_every = 16
    answer = ask("run", folder, "--store", tmp_path / "store")
    assert answer.exit_code == 1
    said = " ".join(answer.stdout.split())
    assert "4 attempts were lost, the last 3 of them without progress" in said


def test_a_ctrl_c_cancels_in_the_records_and_exits_with_1(
    folder: Path, tmp_path: Path, local: LocalStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(1_000_000))
    look = local.ray.look

    def interrupted_look(attempt: str) -> str:
        if next(looks) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return look(attempt)

    monkeypatch.setattr(local.ray, "look", interrupted_look)
    before = signal.getsignal(signal.SIGINT)
    answer = ask("run", folder, "--store", tmp_path / "store")
    assert answer.exit_code == 1
    assert "cancelled by you" in answer.stdout
    store = Store(tmp_path / "store")
    [execution] = record.names(store, "executions")
    cancelled = record.require(store, f"executions/{execution}/cancelled", record.Cancelled)
    assert cancelled.by == "you"
    assert local.ray.of("t1").status == "stopped"
    assert signal.getsignal(signal.SIGINT) is before


def test_missing_devices_are_bad_input(
    tmp_path: Path, local: LocalStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ray, "local_gpus", lambda: 0)
    folder = declare(tmp_path / "tiny", TINY.replace("kind: cpu", "kind: h100"))
    answer = ask("run", folder, "--store", tmp_path / "store")
    assert answer.exit_code == 2
    assert "NVIDIA H100" in answer.stderr
    assert "this machine has 0" in answer.stderr
    assert local.started == 0


def test_the_extra_is_named_if_jax_lacks_gpu_support(
    tmp_path: Path, local: LocalStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ray, "local_gpus", lambda: 1)
    monkeypatch.setattr(accelerators, "ROOT", tmp_path / "machine")
    monkeypatch.setattr(accelerators, "_is_installed", lambda _: False)
    a_gpu(tmp_path / "machine")
    folder = declare(tmp_path / "tiny", TINY.replace("kind: cpu", "kind: h100"))
    for command, code in (("plan", 0), ("run", 2)):
        answer = ask(command, folder, "--store", tmp_path / "store")
        assert answer.exit_code == code
        assert "`pip install 'regatta[cuda]'`" in answer.stderr
    assert local.started == 0
    on_a_cpu = declare(tmp_path / "other", TINY)
    assert "regatta[cuda]" not in ask("plan", on_a_cpu).stderr


def test_a_cluster_of_ones_own_is_used_and_no_local_ray_started(
    folder: Path, tmp_path: Path, local: LocalStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RayAddress] = []
    monkeypatch.setattr(local_run, "RayJobs", lambda ray: asked.append(ray) or local.ray)
    cluster = ["--ray-address", "http://cluster:8265", "--ray-token-file", tmp_path / "token"]
    answer = ask("run", folder, "--store", tmp_path / "store", *cluster)
    assert answer.exit_code == 0
    assert set(asked) == {RayAddress("http://cluster:8265", tmp_path / "token")}
    assert local.started == 0


def test_trouble_with_ray_is_said_in_words(
    folder: Path, tmp_path: Path, local: LocalStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> str:
        raise RayError("Ray at http://x does not accept the token in /t.")

    monkeypatch.setattr(local.ray, "look", refuse)
    answer = ask("run", folder, "--store", tmp_path / "store")
    assert answer.exit_code == 1
    assert answer.stderr.strip().endswith("Ray at http://x does not accept the token in /t.")
