"""Gangs: their rules, and real ones, whose processes a local Ray starts from a job: `test_gang.py
FOLDER SLICES HOSTS_PER_SLICE DEVICES DISTURB`, with so many CPU devices each."""

import itertools
import json
import shlex
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.model.processes import Place
from runner.execution import local_ray
from runner.execution.ray_jobs import RayJobs
from runner.store.artifacts import MakerLost, MakingFailed
from runner.worker.host_group import End, Gang, TpuSlice, decide, ranked, strategy

STEPS = 20

# Slices, hosts in each, devices of each, and in which attempt which of them ends when and how.
TWO = ("2", "1", "2", '[[1, 1, 13, "kill"]]')
FOUR = ("2", "2", "1", '[[1, 0, 13, "kill"], [2, 3, 15, "term"]]')


# ── The rules ────────────────────────────────────────────────────────────────────────────────


def test_ranks_lie_slice_by_slice_and_inside_of_one_by_the_hosts_numbers() -> None:
    gang = Gang(hosts_per_slice=3, slices=2)
    assert gang.hosts == 6
    assert ranked(gang, [2, 0, 1, 0, 2, 1]) == [1, 2, 0, 3, 5, 4]
    assert ranked(gang, [0] * 6) == [0, 1, 2, 3, 4, 5]


def test_hosts_have_nodes_of_their_own_unless_there_is_only_one() -> None:
    assert strategy(1) == "PACK"
    assert strategy(2) == strategy(100) == "STRICT_SPREAD"


def test_a_gang_is_finished_when_all_hosts_have_returned() -> None:
    ends = [End(rank, "returned", result=rank) for rank in (2, 0, 1)]
    assert decide(ends[:2], 3, settled=True) is None
    assert decide(ends, 3, settled=False) == End(0, "returned", result=0)


def test_one_lost_host_ends_all() -> None:
    lost = End(2, "lost", "its node is gone")
    assert decide([End(0, "returned"), lost], 4, settled=False) == lost


def test_an_error_of_the_program_counts_once_no_loss_was_heard_of() -> None:
    raised = End(1, "raised", "WrongTokens: too few")
    assert decide([raised], 2, settled=False) is None
    assert decide([raised], 2, settled=True) == raised
    assert decide([raised, End(0, "raised", "the same")], 2, settled=False) == raised


def test_an_error_that_a_neighbours_loss_brought_about_is_a_loss() -> None:
    felt, lost = End(0, "raised", "ValueError: the barrier is broken"), End(1, "lost", "it died")
    assert decide([felt, lost], 2, settled=False) == lost


def test_after_any_ends_the_gang_ends() -> None:
    for hows in itertools.product(("returned", "raised", "felt", "lost"), repeat=3):
        ends = [End(rank, how) for rank, how in enumerate(hows)]
        for count, settled in itertools.product(range(4), (False, True)):
            last = decide(ends[:count], 3, settled=settled)
            finished = last is not None and last.how == "returned"
            assert finished == (hows == ("returned",) * 3 and count == 3)
            waits = "lost" not in hows[:count] and count < 3
            troubled = {"raised", "felt"} & {*hows[:count]}
            assert (last is None) == (waits and not (settled and troubled))


def test_a_loss_that_was_only_felt_gives_way_to_one_that_ray_reports() -> None:
    felt, lost = End(0, "felt", "a peer is gone"), End(1, "lost", "its node", preempted=True)
    assert decide([felt], 2, settled=False) is None
    assert decide([felt], 3, settled=True) == felt
    raised = End(2, "raised", "it used more than 4 GiB")
    decisive = decide([felt, raised], 3, settled=True)
    assert decisive == replace(felt, why=f"a peer is gone; host 2 said: {raised.why}")
    assert decide([felt, lost], 2, settled=False) == lost


def test_a_slice_of_a_tpu_says_how_many_hosts_it_has() -> None:
    from runner.worker.host_group_ray import network, tpu_gang

    gang = tpu_gang("v5p", "2x2x4", slices=2)
    assert gang == Gang(
        hosts_per_slice=4,
        slices=2,
        resources={"CPU": 1, "TPU": 4},
        environment={"JAX_PLATFORMS": "tpu"},
        tpu=TpuSlice("v5p", "2x2x4"),
    )
    sixth = network(gang, Place(5, 8, "10.0.0.7:4321", slices=2))
    assert sixth["MEGASCALE_COORDINATOR_ADDRESS"] == "10.0.0.7"
    assert (sixth["MEGASCALE_NUM_SLICES"], sixth["MEGASCALE_SLICE_ID"]) == ("2", "1")
    one = tpu_gang("v5p", "2x2x4")
    assert network(one, Place(3, 4, "10.0.0.7:4321")) == {}
    assert network(Gang(2, slices=2), Place(0, 4, "10.0.0.7:4321", slices=2)) == {}


def test_a_shape_that_no_tpu_has_is_refused() -> None:
    from runner.worker.host_group_ray import tpu_gang

    with pytest.raises(ValueError, match="v99"):
        tpu_gang("v99", "2x2x2")


# ── Real ones ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(TWO, id="two-processes"),
        pytest.param(FOUR, id="four-processes", marks=pytest.mark.slow),
    ],
)
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What came of gangs of 2 slices, as `drive` says it."""
    folder = tmp_path_factory.mktemp("gangs")
    return in_a_job(folder, __file__, str(folder), *request.param)


def in_a_job(folder: Path, *command: str) -> dict[str, Any]:
    """What a Python program leaves in `<folder>/found.json`, run as a job of a Ray of its own."""
    tests = Path(__file__).parents[2]
    modules = f"{tests.parent}:{tests / 'engine'}"
    asked = {
        "entrypoint": shlex.join(["exec", sys.executable, *command]),
        "submission_id": "gangs",
        "runtime_env": {"env_vars": {"PYTHONPATH": modules, "JAX_PLATFORMS": "cpu"}},
    }
    with local_ray.local_ray(folder / "ray") as ray:
        token = {"Authorization": f"Bearer {ray.token_file.read_text().strip()}"}
        with (
            httpx.Client(base_url=ray.url, headers=token, trust_env=False) as http,
            closing(RayJobs(ray)) as jobs,
        ):
            http.post("/api/jobs/", json=asked, timeout=60).raise_for_status()
            until = time.monotonic() + 600
            while (state := jobs.look("gangs")) in ("pending", "running", "unreachable"):
                assert time.monotonic() < until
                time.sleep(0.2)
            log = http.get("/api/jobs/gangs/logs", timeout=60).json()["logs"]
    assert state == "succeeded", log[-5000:]
    return json.loads((folder / "found.json").read_text())


def work(place: Place, attempt: int, spec: dict[str, Any]) -> dict[str, Any]:
    """Train, or leave when told to."""
    import one_of_many

    answer = one_of_many.work(place, attempt, spec)
    if max(answer["losses"]) < STEPS:
        raise MakerLost("told to end")
    return answer


def drive(
    folder: Path, slices: int, hosts_per_slice: int, devices: int, disturb: list[Any]
) -> dict[str, Any]:
    """Run a gang undisturbed, one of which a host is killed, and one whose program fails."""
    import compile_fast
    import on_devices
    import one_of_many
    import ray
    from ray.util.placement_group import placement_group_table

    from runner.worker import host_group_ray

    ray.init(log_to_driver=False)
    gang = Gang(
        hosts_per_slice,
        slices,
        resources={"CPU": 0.5},
        environment={
            "JAX_NUM_CPU_DEVICES": str(devices),
            "XLA_FLAGS": " ".join(compile_fast.FLAGS),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "xla"),  # the second gang compiles nothing
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        },
    )
    spec = {"mesh": (2, 2, 1), "config": {"num_train_steps": STEPS, "checkpoint_every": 5}}
    found: dict[str, Any] = {}
    for name, disturbed in {"undisturbed": [], "disturbed": disturb}.items():
        asked = {**spec, "folder": str(folder / name), "disturb": disturbed}
        lost: list[str] = []
        while "digests" not in found.get(name, {}):
            try:
                result = host_group_ray.run(work, gang, len(lost) + 1, asked)
            except MakerLost as error:
                lost.append(str(error))
                continue
            checkpoints = folder / name / str(result["attempt"])
            digests = on_devices.digest_at(checkpoints, (1, 1, 1))
            found[name] = {**result, "lost": lost, "digests": digests}
    try:
        host_group_ray.run(one_of_many.fail, gang, 1, "no such text")
    except MakingFailed as error:
        found["failed"] = str(error)
    found["reserved"] = [group["state"] for group in placement_group_table().values()]
    return found


@pytest.mark.long
def test_a_gang_whose_host_was_killed_ends_with_the_same_bytes(found: dict[str, Any]) -> None:
    once, again = found["undisturbed"], found["disturbed"]
    assert once["lost"] == []
    assert again["attempt"] == 1 + len(again["lost"]) > 1
    assert all("was lost: " in why for why in again["lost"])
    assert again["digests"] == once["digests"]


@pytest.mark.long
def test_the_gang_goes_on_from_a_committed_checkpoint(found: dict[str, Any]) -> None:
    whole, rest = found["undisturbed"]["losses"], found["disturbed"]["losses"]
    assert list(map(int, whole)) == list(range(1, STEPS + 1))
    assert min(map(int, rest)) in (6, 11, 18)
    assert rest == {step: whole[step] for step in rest}


@pytest.mark.long
def test_a_program_that_fails_is_said_and_is_no_loss(found: dict[str, Any]) -> None:
    said = found["failed"]
    assert "failed: ValueError: no such text" in said
    assert "in attempt 1" in said


@pytest.mark.long
def test_no_reservation_outlives_its_gang(found: dict[str, Any]) -> None:
    assert found["reserved"] == ["REMOVED"] * (1 + found["disturbed"]["attempt"] + 1)


if __name__ == "__main__":
    where, *numbers, ends = sys.argv[1:]
    answer = json.dumps(drive(Path(where), *map(int, numbers), json.loads(ends)))
    (Path(where) / "found.json").write_text(answer)
