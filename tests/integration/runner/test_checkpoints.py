"""What survives a job's machine, in a bucket: checkpoints, curves and reports; and that whoever
goes on from them ends as one that was not disturbed, on disk."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.execution.lifecycle import Job
from runner.schema import job_reports, record
from runner.store import checkpoint_sync, digests
from runner.store.checkpoint_sync import Copies, brought
from runner.store.store import Remote, Store, StoreError
from tests import fake_gcs
from tests.integration.runner.test_worker import ONE_SEED, SLOW, TRAINED, Life, Processes, declare
from tests.runner.bucket import ENDLESS, machine, saved

# ── Checkpoints ──────────────────────────────────────────────────────────────────────────────


def save(where: Remote, step: int) -> None:
    """As Orbax does: it has its name when it is complete."""
    draft = where.local() / f"{step}.orbax-checkpoint-tmp"
    (draft / "params").mkdir(parents=True)
    (draft / "params" / "array").write_bytes(b"%d" % step * 1000)
    (draft / "_METADATA").write_bytes(b"{}")
    draft.rename(where.local() / str(step))


def test_saved_checkpoints_are_copied_and_the_next_machine_continues(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (bucket.at(f"steps/words/ab/{n}-aa.scratch/checkpoints") for n in (1, 2))
    assert isinstance(first, Remote)
    assert isinstance(second, Remote)
    for where, steps in ((first, (4, 8)), (second, (9, 12))):
        curve = where.local().with_name("curve")
        curve.mkdir(parents=True)
        with checkpoint_sync.copied(where, curve):
            (curve / "000000.jsonl").write_text(f"to {steps[-1]}")
            for step in steps:
                save(where, step)
    (second.local() / "13.orbax-checkpoint-tmp").mkdir()

    machine(monkeypatch, tmp_path / "second")
    folders = brought([first, second], beside="curve")
    assert folders == [first.local(), second.local()]
    assert [path.name for path in second.local().iterdir()] == ["12"]
    assert not first.local().exists()
    files = {p.relative_to(second.local()).as_posix() for p in second.local().rglob("*")}
    assert files == {"12", "12/_METADATA", "12/params", "12/params/array"}
    assert (second.local() / "12/params/array").read_bytes() == b"12" * 1000
    for where, words in ((first, "to 8"), (second, "to 12")):
        assert where.local().with_name("curve").joinpath("000000.jsonl").read_text() == words
    assert brought([first, second], beside="curve") == folders  # once more changes nothing


def test_checkpoints_that_the_output_needs_come_along(
    bucket: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (bucket.at(f"steps/words/ab/{n}-aa.scratch/checkpoints") for n in (1, 2))
    assert isinstance(first, Remote)
    assert isinstance(second, Remote)
    for where, steps in ((first, (4, 8)), (second, (9, 12))):
        with checkpoint_sync.copied(where):
            for step in steps:
                save(where, step)
    machine(monkeypatch, tmp_path / "second")
    brought([first, second], keep=range(4, 12, 5))
    found = [sorted(path.name for path in where.local().iterdir()) for where in (first, second)]
    assert found == [["4"], ["12", "9"]]


@pytest.mark.usefixtures("impatient")
def test_an_older_checkpoint_is_there_before_a_newer_one(
    bucket: Store, fake: fake_gcs.FakeGcs
) -> None:
    where = bucket.at("work/x.t1-aa/out/checkpoints/fast.s0")
    assert isinstance(where, Remote)
    save(where, 5)
    save(where, 10)
    fake.trouble("insert", "refused", skip=4, times=ENDLESS)  # one checkpoint comes whole
    with pytest.raises(StoreError, match="doing it again is safe"):
        Copies(where).look()
    fake.peace()
    assert checkpoint_sync.saved(where) == 5


@pytest.mark.usefixtures("impatient")
def test_a_checkpoint_counts_once_all_of_it_is_there_and_goes_when_it_goes_here(
    bucket: Store, fake: fake_gcs.FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = bucket.at("work/x.t1-aa/out/checkpoints/fast.s0")
    assert isinstance(where, Remote)
    copies = Copies(where)
    save(where, 5)
    copies.look()
    save(where, 10)
    fake.trouble("insert", "refused", skip=2, times=ENDLESS)  # its files come, and no more
    with pytest.raises(StoreError, match="doing it again is safe"):
        copies.look()
    fake.peace()
    here = Path(os.environ["REGATTA_CACHE"])
    machine(monkeypatch, tmp_path / "second")
    brought([where])
    assert [path.name for path in where.local().iterdir()] == ["5"]

    machine(monkeypatch, here)
    shutil.rmtree(where.local() / "5")
    copies.look()
    assert bucket.list(where.key) == ["10"]
    assert checkpoint_sync.saved(where) == 10
    assert not list(where.local().parent.glob(".*")), "no drafts are left"


def test_a_checkpoint_that_was_changed_in_the_bucket_is_not_gone_on_from(
    bucket: Store, fake: fake_gcs.FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = bucket.at("work/x.t1-aa/out/checkpoints/fast.s0")
    assert isinstance(where, Remote)
    save(where, 5)
    Copies(where).look()
    stored = fake.buckets["jobs"]["lab/work/x.t1-aa/out/checkpoints/fast.s0/5/params/array"]
    stored.data = b"6" * 1000
    machine(monkeypatch, tmp_path / "second")
    with pytest.raises(StoreError, match=r"fast.s0/5 is not what was saved.*go on from an earlier"):
        brought([where])
    assert not (where.local() / "5").exists()


@pytest.mark.parametrize("where_it_lies", ["params/stolen", "all", "beside"])
def test_links_in_a_checkpoint_take_nothing_else_to_the_bucket(
    bucket: Store, fake: fake_gcs.FakeGcs, tmp_path: Path, where_it_lies: str
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key.pem").write_bytes(b"a-held-secret")
    where = bucket.at("steps/words/ab/1-aa.scratch/checkpoints")
    assert isinstance(where, Remote)
    save(where, 5)
    curve = where.local().with_name("curve")
    curve.mkdir()
    laid = (
        curve / "000000.jsonl" if where_it_lies == "beside" else where.local() / "5" / where_it_lies
    )
    laid.symlink_to(secrets if where_it_lies == "all" else secrets / "key.pem")
    with contextlib.suppress(StoreError, digests.BadOutput):
        Copies(where, curve).look()
    assert not [x for x in fake.buckets["jobs"].values() if b"a-held-secret" in x.data]
    counts = [] if where_it_lies == "params/stolen" else ["5"]  # a link beside it is left out
    assert bucket.list(where.key) == counts


# ── Reports ──────────────────────────────────────────────────────────────────────────────────


def test_reports_in_a_bucket_are_believed_as_little_as_on_disk(bucket: Store) -> None:
    out = bucket.at("work/x.t1-aa/out")
    assert isinstance(out, Remote)

    def read(name: str) -> job_reports.AttemptReport | None:
        return job_reports.read_report(out / name, job_reports.AttemptReport, "aa")

    assert read("finished.json") is None
    (out / "finished.json").create(b'{"nonce": "aa"}')
    assert read("finished.json") == job_reports.AttemptReport(nonce="aa")
    (out / "forged.json").create(b'{"nonce": "bb"}')
    (out / "large.json").create(b" " * (job_reports.MOST_BYTES + 1))
    for name, words in (("forged.json", "wrong nonce"), ("large.json", "larger than")):
        with pytest.raises(job_reports.Refused, match=words):
            read(name)
    with pytest.raises(StoreError, match="somebody else wrote it"):
        (out / "finished.json").create(b"{}")

    line = b'{"step":%d,"loss":1.0,"grad_norm":1.0,"learning_rate":0.1,"tokens":1}\n'
    (out / "metrics" / "000000.jsonl").create(line % 1 + line % 2)
    (out / "metrics" / "000001.jsonl").create(line % 3 + b"no JSON\n" + line % 4)
    refused: list[str] = []
    steps = [line.step for line in job_reports.read_metrics(out / "metrics", 9, refused)]
    assert steps == [1, 2, 3]
    assert len(refused) == 1
    assert refused[0].startswith("x.t1-aa/out/metrics/000001.jsonl, line 2: Invalid JSON")


@pytest.mark.usefixtures("impatient")
def test_a_bucket_that_cannot_be_asked_says_nothing_of_a_report(
    bucket: Store, fake: fake_gcs.FakeGcs
) -> None:
    out = bucket.at("work/x.t1-aa/out")
    fake.trouble("download", "refused", status=403, message="ada may not read", times=ENDLESS)
    with pytest.raises(StoreError, match="ada may not read"):
        job_reports.read_report(out / "finished.json", job_reports.AttemptReport, "aa")
    fake.peace()
    del fake.buckets["jobs"]
    with pytest.raises(StoreError, match="no such bucket"):
        job_reports.read_metrics(out / "metrics", 9, []).__next__()


# ── Workers ──────────────────────────────────────────────────────────────────────────────────


class Machines(Processes):
    """Each job on a machine of its own, with an identity of its own, for which there is no bucket
    but the jobs'. The first one is killed when the first checkpoint is in the bucket."""

    def __init__(self, home: Path, server: fake_gcs.FakeGcs) -> None:
        super().__init__()
        self._home, self._server = home, server

    def look(self, folder: str) -> Job:
        if list(self.jobs) == [folder] and saved(self._server.buckets["jobs"]):
            self.jobs[folder].kill()
        return super().look(folder)

    def submit(
        self,
        folder: str,
        where: Path | str,
        spec_sha256: str,
        plan: record.Plan,  # noqa: ARG002
    ) -> None:
        home = self._home / folder
        home.mkdir(parents=True)
        own = {"STORAGE_EMULATOR_HOST": self._server.url, "REGATTA_CACHE": str(home)}
        with (home / "job.log").open("wb") as log:
            self.jobs[folder] = subprocess.Popen(
                self.command(where, spec_sha256), stdout=log, stderr=log, env=os.environ | own
            )


@pytest.mark.slow
def test_a_killed_worker_goes_on_elsewhere_from_the_bucket_and_ends_as_one_on_disk(
    fake: fake_gcs.FakeGcs, tmp_path: Path
) -> None:
    text = ONE_SEED.replace(SLOW, "")
    text = text.replace("num_train_steps: 20", "num_train_steps: 200, evaluate_every: 5")
    folder = declare(tmp_path / "tiny", text)
    undisturbed = Life(folder, Store(tmp_path / "store"))
    assert undisturbed.to_the_end().state == "done"

    with fake_gcs.serving() as theirs:
        theirs.buckets = {"jobs": fake.buckets["jobs"]}
        life = Life(folder, Store("gs://records/lab", jobs="gs://jobs/lab"))
        life.jobs = Machines(tmp_path / "machines", theirs)
        result = life.to_the_end()
        assert set(theirs.asked) == {"jobs"}
    assert (result.state, result.why, result.refused) == ("done", "", ())
    assert [folder.split(".")[1][:2] for folder in life.jobs.jobs] == ["t1", "t2"]
    assert life.ended("t1").saved[TRAINED] >= 5
    step = life.plan.steps[TRAINED]
    at = f"steps/{step.store}/{step.fingerprint[:16]}"
    [curve] = (tmp_path / "machines").glob(f"*/*/{at}/2-*.scratch/curve/000000.jsonl")
    assert json.loads(curve.read_text().partition("\n")[0])["step"] > 5
    assert life.run("fast.s0").evaluated == undisturbed.run("fast.s0").evaluated
    assert life.run("fast.s0").curve == undisturbed.run("fast.s0").curve
    validation = life.run("fast.s0").validation
    assert [step for step, *_ in validation] == [*range(5, 201, 5)]
    assert validation == undisturbed.run("fast.s0").validation
    assert not [name for name in fake.buckets["records"] if name.startswith("lab/work")]
    # What the machines kept for themselves is gone with the attempts that ended well.
    assert not list((tmp_path / "machines").glob("*.t2-*/*/work/*"))


VANISHING = """
import sys
from runner.store import gcs
from runner.worker import executor, main as worker

def run(*_):
    print("ready", flush=True)
    sys.stdin.readline()
    raise RuntimeError("no device")

gcs.RETRY = gcs.RETRY.with_delay(initial=0.01).with_timeout(0.3)
worker.print_to = lambda _: None
executor.run = run
sys.exit(worker.main(*sys.argv[1:]))
"""


@pytest.mark.usefixtures("impatient")
def test_a_bucket_that_vanishes_under_a_worker_and_the_lab_is_said_and_nothing_is_taken_for_done(
    fake: fake_gcs.FakeGcs, tmp_path: Path
) -> None:
    life = Life(declare(tmp_path / "tiny"), Store("gs://records/lab", jobs="gs://jobs/lab"))
    life.jobs = paused = Paused()
    life.until("t1.started")
    [job] = paused.jobs.values()
    assert job.stdin
    assert job.stdout
    assert job.stdout.readline() == b"ready\n"
    kept = fake.buckets.pop("jobs")
    _, said = job.communicate(b"go on\n", timeout=60)
    assert job.returncode == 1
    assert b"failed.json was not written: there is no such bucket" in said
    with pytest.raises(StoreError, match=r"gs://jobs/lab: .* there is no such bucket; was it del"):
        life.turn()
    fake.buckets["jobs"] = kept
    life.until("t1.ended")
    ended = record.require(life.store, f"executions/{life.id}/t1.ended", record.Ended)
    assert (ended.how, ended.why) == ("lost", "its job crashed")


class Paused(Processes):
    """Jobs that begin, and then wait for a line."""

    def submit(
        self,
        folder: str,
        where: Path | str,
        spec_sha256: str,
        plan: record.Plan,  # noqa: ARG002
    ) -> None:
        command, pipe = [sys.executable, "-c", VANISHING, str(where), spec_sha256], subprocess.PIPE
        self.jobs[folder] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
