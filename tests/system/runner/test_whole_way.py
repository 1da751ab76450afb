"""The whole way with Ray and JAX: one local Ray, one tiny experiment, run twice, reproduced, and
once killed in the middle. What is expensive happens in `story`; the tests read what came of it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli import main
from runner.execution import effects, lifecycle, local_ray
from runner.execution.local_ray import LocalRay
from runner.execution.ray_jobs import RayJobs
from runner.lib import process_tree
from runner.planning import planner
from runner.schema import record
from runner.schema.job_reports import ANOTHER_WORKER
from runner.store import artifacts
from runner.store.leases import LeaseWatch
from runner.store.store import Store
from tests.integration.runner.test_worker import TINY, declare

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc"),
]

CANARY = "canary-6b1f0c1e-of-the-parents-environment"
LONGER = TINY.replace("num_train_steps: 20", "num_train_steps: 60")


@dataclass
class Story:
    """What happened."""

    answers: list[dict[str, Any]] = field(default_factory=list)  # of `run --json`, each time
    made: dict[str, artifacts.Made] = field(default_factory=dict)  # by the first of them
    reproduced: dict[str, Any] = field(default_factory=dict)  # of `reproduce --json`
    environments: dict[int, bytes] = field(default_factory=dict)  # while a job trained
    worker: int = 0  # the process that was killed
    trainer: str = ""  # the step that it was at
    second_worker: int = 0  # exit code
    attempts: tuple[lifecycle.Attempt, ...] = ()  # of the execution that was disturbed
    disturbed: dict[str, record.Run] = field(default_factory=dict)
    made_again: dict[str, artifacts.Made] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)  # processes after Ray was stopped
    listening: set[str] = field(default_factory=set)  # hexadecimal addresses of Ray's servers
    scratch: Path = Path()

    def params(self, n: int) -> dict[str, str]:
        """Each run's SHA-256 over its parameters, of the n-th undisturbed execution."""
        return {
            record.run_name(run["arm"], run["seed"]): run["evaluated"]["params_sha256"]
            for run in self.answers[n]["runs"]
        }


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = declare(tmp_path_factory.mktemp("experiments") / "tiny", LONGER)
    store, other = (Store(tmp_path_factory.mktemp("lab") / "store") for _ in range(2))
    story = Story()
    os.environ["REGATTA_CANARY"] = CANARY
    try:
        with local_ray.local_ray(store.local("ray")) as ray:
            story.scratch = ray.token_file.parent
            _run_twice(story, folder, store, ray)
            _run_disturbed(story, folder, other, ray)
            family = [ray.guard.pid, *process_tree.descendants(ray.guard.pid)]
            story.listening = _listening(family)
        story.left = [pid for pid in family if _environment(pid)]
    finally:
        del os.environ["REGATTA_CANARY"]
    return story


def _listening(processes: list[int]) -> set[str]:
    """The local addresses on which these processes listen, as /proc/net writes them."""
    sockets = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(str(descriptor.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def _run_twice(story: Story, folder: Path, store: Store, ray: LocalRay) -> None:
    for _ in range(2):
        story.answers.append(_ask("run", str(folder), store, ray))
        story.made = story.made or _made(store, planner.plan_folder(folder))
    story.reproduced = _ask("reproduce", story.answers[0]["execution"], store, ray)


def _made(store: Store, plan: record.Plan) -> dict[str, artifacts.Made]:
    """What lies there of each step."""
    found = {x: artifacts.find(store, of.store, of.fingerprint) for x, of in plan.steps.items()}
    return {name: made for name, made in found.items() if made}


def _ask(command: str, what: str, store: Store, ray: LocalRay) -> Any:
    given = ["--ray-address", ray.url, "--ray-token-file", str(ray.token_file), "--json"]
    answer = CliRunner().invoke(main.app, [command, what, "--store", str(store.root), *given])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def _run_disturbed(story: Story, folder: Path, store: Store, ray: LocalRay) -> None:
    """The same plan in another store; its worker is killed after a run's sixth checkpoint."""
    plan = planner.plan_folder(folder, store)
    now = datetime.now(UTC)
    execution = record.Execution(id=record.execution_id("x"), at=now, plan=plan, origin=None)
    effects.begin(store, execution)
    jobs, leases = RayJobs(ray), LeaseWatch(store)
    deadline = time.monotonic() + 120
    while not (facts := effects.observe(store, jobs.look, leases, execution.id)).result:
        assert time.monotonic() < deadline, facts
        if action := lifecycle.decide(facts):
            effects.act(store, jobs, facts, action, datetime.now(UTC))
        elif not story.worker and facts.attempts[0].lease.started:
            _disturb(story, store, facts.attempts[0].folder, ray)
        else:
            time.sleep(0.1)
    story.attempts = facts.attempts
    for arm, seed in plan.runs():
        name = record.run_name(arm, seed)
        path = f"runs/{execution.id}.{name}"
        story.disturbed[name] = record.require(store, path, record.Run)
    story.made_again = _made(store, plan)


def _disturb(story: Story, store: Store, attempt: str, ray: LocalRay) -> None:
    started = json.loads(store.require(f"leases/{attempt}/start.json"))
    steps = store.local("steps/train")
    deadline = time.monotonic() + 60
    while not (saved := list(steps.glob("*/*/checkpoints/30"))):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    family = [ray.guard.pid, *process_tree.descendants(ray.guard.pid)]
    for pid in family:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").resolve() == saved[0].parents[1]:
                os.kill(pid, signal.SIGSTOP)  # so that it stays where it is while we look
    story.trainer = saved[0].parents[2].name
    story.environments = {pid: _environment(pid) for pid in family}
    command = [sys.executable, "-m", "runner.worker.main", str(store.local(f"work/{attempt}"))]
    story.second_worker = subprocess.run(command, check=False).returncode
    story.worker = started["pid"]
    os.kill(story.worker, signal.SIGKILL)


def _environment(pid: int) -> bytes:
    """Of a living process; empty for one that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def test_an_experiment_goes_the_whole_way(story: Story) -> None:
    answer = story.answers[0]
    assert answer["approval"] == "none"
    assert answer["result"]["state"] == "done"
    assert answer["result"]["refused"] == []
    bpb = {(run["arm"], run["seed"]): run["evaluated"]["bpb"] for run in answer["runs"]}
    assert len(bpb) == 4
    assert all(bpb["fast", seed] < bpb["slow", seed] - 0.5 for seed in (0, 1))
    assert all([step for step, _ in run["curve"]] == list(range(1, 61)) for run in answer["runs"])
    assert answer["receipts"]["t1"]["platform"] == "cpu"


def test_the_same_plan_run_again_is_a_new_execution_of_what_is_there(story: Story) -> None:
    assert story.answers[0]["execution"] != story.answers[1]["execution"]
    assert story.answers[0]["plan"] == story.answers[1]["plan"]
    assert story.params(0) == story.params(1)
    assert len(set(story.params(0).values())) == 4


def test_an_execution_that_is_reproduced_here_is_so_bit_for_bit(story: Story) -> None:
    assert {one["how"] for one in story.reproduced["steps"].values()} == {"bit for bit"}
    assert len(story.reproduced["steps"]) == 6
    assert story.reproduced["receipts_differ"] == []
    assert story.reproduced["again"] != story.reproduced["execution"]


def test_a_run_whose_job_was_killed_and_resumed_ends_with_equal_bytes(story: Story) -> None:
    assert [attempt.name for attempt in story.attempts] == ["t1", "t2"]
    lost = story.attempts[0].ended
    assert lost
    assert (lost.how, lost.why) == ("lost", "its job crashed")
    found = {
        name: run.evaluated.params_sha256 for name, run in story.disturbed.items() if run.evaluated
    }
    assert found == story.params(0)
    assert len(story.made) == 6
    assert {name: one.manifest.files for name, one in story.made_again.items()} == {
        name: one.manifest.files for name, one in story.made.items()
    }
    [(name, resumed)] = [
        (name, one) for name, one in story.made_again.items() if one.manifest.generation > 1
    ]
    assert resumed.manifest.fingerprint[:16] == story.trainer
    assert lost.saved[name] >= 30, "and it went on from there"
    noted = resumed.folder.with_name(f"{resumed.folder.name}.scratch") / "curve/000000.jsonl"
    assert json.loads(noted.read_text().partition("\n")[0])["step"] > 30


def test_equal_figures_come_with_equal_receipts(story: Story) -> None:
    for name, one in story.made.items():
        receipts = [one.manifest.receipt, story.made_again[name].manifest.receipt]
        for receipt in receipts:
            cores = receipt["affinity"].split(",")  # how many matters, and not which
            assert not receipt["threads"] or len(cores) == int(receipt["threads"])
        shared = [{**receipt, "affinity": ""} for receipt in receipts]
        assert shared[0] == shared[1]


def test_a_resumed_curve_has_no_gap_and_is_the_undisturbed_one(story: Story) -> None:
    for run in story.answers[0]["runs"]:
        name = record.run_name(run["arm"], run["seed"])
        assert [list(point) for point in story.disturbed[name].curve] == run["curve"]


def test_a_second_worker_on_a_running_attempt_leaves(story: Story) -> None:
    assert story.second_worker == ANOTHER_WORKER


def test_no_secret_of_the_parent_is_in_any_environment_of_ray_or_its_jobs(story: Story) -> None:
    assert story.worker in story.environments
    seen = [environment for environment in story.environments.values() if environment]
    assert len(seen) > 10
    assert b"RAY_AUTH_TOKEN_PATH=" in story.environments[story.worker]
    assert not any(CANARY.encode() in environment for environment in seen)


def test_no_process_and_no_file_of_ray_is_left_behind(story: Story) -> None:
    assert story.left == []
    assert not story.scratch.exists()


def test_ray_listens_on_loopback_only(story: Story) -> None:
    assert story.listening
    assert story.listening <= {"0100007F", "0000000000000000FFFF00000100007F"}
