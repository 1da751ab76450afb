"""A gang whose store is in a bucket: its hosts share no folder. Each reads tokens from the bucket
and writes its part of a checkpoint there."""

import random
import signal
import threading
import time
from pathlib import Path

import pytest

from runner.planning import planner
from runner.schema.record import Plan
from runner.store import artifacts, checkpoint_sync
from runner.store.store import Remote, Store
from runner.worker import executor, host_group_ray
from tests import fake_gcs
from tests.runner.local_gang import LocalGangs

STEPS, EVERY = 40, 10
DECLARED = f"""title: T
resources: {{kind: cpu}}
steps:
  tokens: {{do: tokenize, config: {{source: stdlib}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    resources: {{kind: cpu, count: COUNT}}
    config:
      model: {{hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 32}}
      train: {{train_batch_size: 64, num_train_steps: {STEPS}, learning_rate: 0.01,
              checkpoint_every: {EVERY}}}
      compute: {{mesh: {{fsdp: COUNT}}}}
"""


def made(store: Store, folder: Path, count: int = 2) -> tuple[Plan, artifacts.Made]:
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(DECLARED.replace("COUNT", str(count)))
    plan = planner.plan_folder(folder, store)
    for name in ("tokens", "train"):
        last = executor.make(store, name, plan.steps, plan.kinds, folder, "x1")
    return plan, last


class Killer:
    """Kills a host of each of the first gangs, some time after its first checkpoint."""

    def __init__(self, gangs: LocalGangs, around: Remote, times: int) -> None:
        self._gangs, self._around, self._times = gangs, around, times
        self._chance = random.Random(21)
        self.failed: list[BaseException] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _saved(self) -> int:
        names = self._around.store.list(self._around.key)
        places = (self._around / x / "checkpoints" for x in names if x.endswith(".scratch"))
        return max((checkpoint_sync.saved(place) for place in places), default=0)

    def _run(self) -> None:
        try:
            before = 0
            for number in range(1, self._times + 1):
                until = time.monotonic() + 200
                while self._gangs.count < number or (at := self._saved()) <= before:
                    assert time.monotonic() < until
                    time.sleep(0.05)
                before = at
                time.sleep(self._chance.uniform(0, 0.5))
                host = self._chance.choice(self._gangs.hosts)
                assert host.poll() is None, "it ended before it was killed; make the run longer"
                host.send_signal(signal.SIGKILL)
        except BaseException as error:
            self.failed.append(error)


@pytest.mark.long
def test_a_gang_on_a_bucket_that_is_killed_ends_with_the_bytes_of_one_on_disk(
    bucket: Store,
    fake: fake_gcs.FakeGcs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gangs = LocalGangs(tmp_path / "calm")
    monkeypatch.setattr(host_group_ray, "run", gangs.run)
    _, undisturbed = made(Store(tmp_path / "disk"), tmp_path / "small")
    gangs = LocalGangs(tmp_path / "gangs")
    monkeypatch.setattr(host_group_ray, "run", gangs.run)
    plan = planner.plan_folder(tmp_path / "small", bucket)
    step = plan.steps["train"]
    around = bucket.at(f"steps/{step.store}/{step.fingerprint[:16]}")
    assert isinstance(around, Remote)
    killer = Killer(gangs, around, times=2)
    _, disturbed = made(bucket, tmp_path / "small")
    killer.thread.join()
    assert not killer.failed, killer.failed
    assert gangs.count == 3
    assert disturbed.manifest.files == undisturbed.manifest.files
    ends = artifacts.history(bucket, step.store, step.fingerprint)
    assert [end.how for _, end in ends if end] == ["lost", "lost", "made"]
    for rank in (0, 1):  # each has its own copy of the tokens, and wrote its own part
        assert list((tmp_path / "gangs" / f"host-{rank}").rglob("steps/tokenize/*/*/train/tokens"))
        written = [x for x in fake.buckets["jobs"] if f"/ocdbt.process_{rank}/" in x]
        assert written, rank
