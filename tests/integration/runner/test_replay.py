"""A stretch of a run that is trained again: the same bits, or it is said."""

import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.analysis import run_comparison
from runner.cli import replay
from runner.cli.replay import CannotReplay
from runner.isolation import bubblewrap
from runner.schema import record
from runner.schema.record import Execution, Replayed
from runner.store import scratch_paths
from runner.store.artifacts import MakingFailed
from runner.store.scratch_paths import SCRATCH
from runner.store.store import Store
from runner.worker import replay as worker_replay
from runner.worker import shard_jobs, step_process
from runner.worker.step_process import Job
from tests import synthetic
from tests.decided import KINDS
from tests.integration.runner.test_execute import HEAD, OWN, made, planned
from tests.pretended import declare, pretend
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import local as local  # a fixture

RECEIPT = {
    **{"jax": "0.10.2", "affinity": "0,1", "isolation": "bubblewrap 0.8.0"},
    "inputs": "cd" * 32,  # a stretch has none
}
ISOLATES = pytest.mark.skipif(
    bool(bubblewrap.probe()),
    reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
)
CURVE = {5: 2.0, 6: 1.9}


def found(same: bool, receipt: dict[str, str], loss: float = 2.0) -> dict[str, Any]:
    return {
        "same": same,
        "now_sha256": "ab" * 32,
        "losses": {"5": loss, "6": 1.9},
        "receipt": receipt,
    }


@pytest.mark.parametrize(
    ("said", "how", "words"),
    [
        (found(True, {}), "bit for bit", "abababababababab…"),
        (
            found(False, RECEIPT | {"affinity": "2,3", "inputs": ""}),
            "differs",
            "although devices and versions are the same",
        ),
        (found(False, RECEIPT | {"jax": "0.11"}, 2.01), "within the tolerance", "0.50% apart; jax"),
        (found(False, RECEIPT | {"jax": "0.11"}, 2.1), "differs", "up to 5.00% apart"),
    ],
)
def test_a_replayed_stretch_is_judged(said: dict[str, Any], how: str, words: str) -> None:
    told = replay.judged(said, CURVE, RECEIPT)
    assert told[0] == how
    assert words in told[1]


def test_an_execution_of_an_older_lab_is_not_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    execution = synthetic.execution(synthetic.plan().model_copy(update={"steps": {}}))
    synthetic.begin(store, execution)
    older = ask("replay", execution.id, "--store", store.root)
    assert older.exit_code == 2
    assert f"{execution.id} is of an older lab, whose plans have no steps" in older.stderr


@pytest.mark.parametrize(
    ("run", "broken", "words"),
    [
        ("", "tokens", "train/deep did not run; train/wide did not run"),
        ("", "train/deep", "no checkpoint of .* is left"),
        ("train/deep", "train/deep", "again: train/deep failed: ValueError: no such word"),
        ("train/wyde", "", "train/deep, train/wide; did you mean `train/wide`"),
    ],
)
def test_an_untrained_run_is_not_blamed_on_gc(
    tmp_path: Path, local: LocalStub, run: str, broken: str, words: str
) -> None:
    local.ray.make_steps = pretend(broken=broken)
    folder, store = declare(tmp_path / "which"), Store(tmp_path / "store")
    ran = json.loads(ask("run", folder, "--store", store.root, "--json").stdout)["execution"]
    execution = record.require(store, f"executions/{ran}/execution", Execution)
    for removed in (False, True):  # by gc, that is
        with pytest.raises(CannotReplay, match=words):
            replay.replay(store, execution, run, random.Random(1))
        if not removed:
            shutil.rmtree(tmp_path / "store" / "steps")


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("train/deep", "train/deep, curve.jsonl: it is not the file that was made"),
        ("tokens", "what tokens made cannot be trained on: .*its file 'text.txt' is not the one"),
    ],
)
def test_a_damaged_run_is_not_replayed(
    tmp_path: Path, local: LocalStub, damaged: str, words: str
) -> None:
    local.ray.make_steps = pretend()
    folder, store = declare(tmp_path / "which"), Store(tmp_path / "store")
    ran = json.loads(ask("run", folder, "--store", store.root, "--json").stdout)["execution"]
    execution = record.require(store, f"executions/{ran}/execution", Execution)
    for name in {"train/deep": 0, damaged: 1}:
        step = execution.plan.steps[name]
        [made] = store.local(f"steps/{step.store}/{step.fingerprint[:16]}").glob(f"1-{'?' * 16}")
        (made.with_name(made.name + SCRATCH) / "checkpoints" / "4").mkdir(parents=True)
    for file in made.iterdir():
        file.write_bytes(bytes(reversed(file.read_bytes())))
    with pytest.raises(CannotReplay, match=words):
        replay.replay(store, execution, "train/deep", random.Random(1))


def test_own_code_is_replayed_in_isolation_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    execution = synthetic.execution(planned(tmp_path, store), pull=None)
    monkeypatch.setattr(
        bubblewrap, "probe", lambda: "bubblewrap does not work here (says the test)."
    )
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it was run"))
    monkeypatch.setattr("runner.store.artifacts.find", lambda *_: SimpleNamespace(folder=tmp_path))
    with pytest.raises(CannotReplay, match=r"own.*only in isolation: bubblewrap does not work .*"):
        replay._trained(store, execution, "train/fast", tmp_path, (0, 4))


@ISOLATES
@pytest.mark.long
@pytest.mark.parametrize(
    ("peeks", "how"),
    [
        pytest.param("", "bit for bit", marks=pytest.mark.slow),
        ("if list(Path('begun').glob('*')): step += 1", "differs"),
    ],
)
def test_own_code_that_is_replayed_sees_where_it_begins_and_not_where_it_should_come_to(
    tmp_path: Path, peeks: str, how: str
) -> None:
    """It may find out that it is replayed, and can then only come out otherwise."""
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store, SCHEDULED, own=OWN + RATES.format(peeks=peeks or "pass"))
    execution = synthetic.execution(plan, pull=None)
    made(store, plan, execution.id)
    told = replay.replay(store, execution, "train", _chooses((4, 8)))
    assert told.how == how, told.words


@ISOLATES
@pytest.mark.slow
def test_a_link_to_the_wanted_checkpoint_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    own = OWN + RATES.format(peeks="pass") + LINKS
    plan = planned(tmp_path, store, SCHEDULED, own=own)
    execution = synthetic.execution(plan, pull=None)
    made(store, plan, execution.id)
    with pytest.raises(CannotReplay, match="step 8 has left no folder to compare, or one behind"):
        replay.replay(store, execution, "train", _chooses((4, 8)))
    assert not record.names(store, f"replays/{execution.id}")


@pytest.mark.parametrize("place", ["before/4", "before/8", "now/8"])
def test_no_checkpoint_behind_a_link_is_shown_to_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A box shows what a link leads to: records, say, or the checkpoint that it should come to."""
    shown: list[Path] = []
    (tmp_path / "secret").mkdir()
    for name in ("before/4", "before/8"):
        (tmp_path / name).mkdir(parents=True)

    def run(job: Job) -> None:
        shown.extend(step_process.box_of(job).reads)
        if job.function == worker_replay.TRAIN:
            now = Path(job.out) / "now"
            (now / "8").mkdir(parents=True)
            if place.startswith("now"):
                (now / "8").rmdir()
                (now / "8").symlink_to(tmp_path / "before" / "8")
        Path(job.scratch, scratch_paths.RECEIPT).write_text("{}")

    if place.startswith("before"):
        (tmp_path / place).rmdir()
        (tmp_path / place).symlink_to(tmp_path / "secret")
    monkeypatch.setattr(shard_jobs, "run", run)
    stretch = worker_replay.Stretch(
        config={},
        inputs={},
        isolated=True,
        devices=KINDS["cpu"],
        count=1,
        checkpoints=str(tmp_path / "before"),
        first=4,
        last=8,
    )
    with pytest.raises(MakingFailed, match="behind a link"):
        worker_replay.replay(stretch)
    assert all(path.resolve() == path for path in shown)


@ISOLATES
@pytest.mark.long
def test_a_stretch_between_two_checkpoints_comes_out_the_same_or_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store)
    plan = plan.model_copy(
        update={"steps": {x: plan.steps[x] for x in plan.steps if x.split("/")[0] in NEEDED}}
    )
    execution: Execution = synthetic.execution(plan, pull=None)
    made(store, plan, execution.id)
    stretches = replay._stretches(store, execution, "train/fast")
    assert [x[1:] for x in stretches] == [(0, 4), (4, 8)]
    told = replay.replay(store, execution, "train/fast", _chooses((4, 8)))
    assert (told.first, told.last, told.how) == (4, 8, "bit for bit")
    slow = replay._stretches(store, execution, "train/slow")[0][0]
    fast = stretches[0][0]
    shutil.rmtree(fast / "4")
    shutil.copytree(slow / "4", fast / "4")
    told = replay.replay(store, execution, "train/fast", _chooses((4, 8)))
    assert told.how == "differs"
    said = record.numbered(store, f"replays/{execution.id}", Replayed)
    assert [one.how in run_comparison.GOOD for one in said] == [True, False]


SCHEDULED = f"""{HEAD}steps:
  tokens: {{do: tokenize, config: {{source: lab-2026-11}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    config:
      own: {{schedule: "own:rates"}}
      model: {{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}}
      train: {{train_batch_size: 2, num_train_steps: 8, learning_rate: 0.01, checkpoint_every: 4}}
"""
RATES = """
from pathlib import Path

def rates(config, step):
    for begun in Path("begun").glob("*"):
        if list(begun.resolve().parent.glob("8")):
            raise AssertionError("the end is in sight")
    {peeks}
    return 0.01 / step
"""
LINKS = """
import atexit, shutil

def end():
    [made] = Path("..").glob("*/now/8")
    if made.exists():
        shutil.rmtree(made)
        made.symlink_to(next(Path("begun").glob("*")).resolve().parent / "8")

atexit.register(end)
"""
NEEDED = ("prepare", "short", "loud", "tokens", "train")


def _chooses(stretch: tuple[int, int]) -> random.Random:
    class Chance(random.Random):
        def choice(self, choices: Any) -> Any:
            return next(x for x in choices if tuple(x[2:]) == stretch)

    return Chance()
