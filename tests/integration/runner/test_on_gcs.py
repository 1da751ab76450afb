"""Steps and commands on a store in a bucket: what is made is what is made on disk, and a bucket
that fails in the middle is no success."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runner.cli import main
from runner.lib import paths
from runner.planning import planner
from runner.schema import step_graph
from runner.schema.record import Plan
from runner.store import artifacts
from runner.store.artifacts import MakingFailed, find, make
from runner.store.store import Store, StoreError
from runner.worker import executor
from runner.worker.step_process import Job
from tests import fake_gcs
from tests.decided import KINDS
from tests.integration.runner.test_execute import OWN
from tests.integration.runner.test_worker import declare
from tests.runner.bucket import ENDLESS, machine, saved

FINGERPRINT = "0123456789abcdef" * 4
GRAPH = """\
title: A small text
resources: {kind: cpu}
steps:
  prepare: {do: own:prepare, config: {documents: 40}}
  tokens: {do: tokenize, inputs: {text: prepare}}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}
      train: {train_batch_size: 2, num_train_steps: 8, learning_rate: 0.01, checkpoint_every: 4}
  best: {do: own:best, inputs: {scores: scores}}
  scores: {do: evaluate, inputs: {models: train, tokens: tokens}, config: {tokens: 64}}
"""


def planned(tmp_path: Path, store: Store, declared: str = GRAPH) -> Plan:
    folder = tmp_path / "small"
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(declared)
    (folder / "own.py").write_text(OWN)
    return planner.plan_folder(folder, store)


def made(store: Store, plan: Plan, last: str = "") -> dict[str, artifacts.Made]:
    """The steps of a plan, up to the `last` one if it is named."""
    code = store.fetch(planner.code_folder(plan))
    names = step_graph.order({name: step.needs for name, step in plan.steps.items()})
    names = names[: names.index(last) + 1] if last else names
    return {
        name: executor.make(
            store, name, plan.steps, plan.kinds, code, "x1", terms=executor.OWN_MACHINE
        )
        for name in names
    }


def write(out: Path) -> None:
    """What a step makes: two files, one of them empty."""
    (out / "deep").mkdir()
    (out / "deep" / "words.txt").write_text("many words\n" * 1000)
    (out / "none").write_bytes(b"")


def never(_: object) -> None:
    raise AssertionError("there is nothing to make or to wait for")


# ── Steps ────────────────────────────────────────────────────────────────────────────────────


def test_an_output_is_uploaded_and_each_machine_copies_it_once_and_checks_it(
    bucket: Store, fake: fake_gcs.FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = make(Store(tmp_path / "store"), "words", FINGERPRINT, write, {})
    made = make(bucket, "words", FINGERPRINT, write, {})
    assert made.manifest.files == on_disk.manifest.files
    assert (made.folder / "none").is_file()

    machine(monkeypatch, tmp_path / "second")
    assert make(bucket, "words", FINGERPRINT, never, {}) == made  # found, and not read
    there = find(bucket, "words", FINGERPRINT, check=False)
    assert there
    assert not there.folder.exists()
    copy = find(bucket, "words", FINGERPRINT)
    assert copy == made
    assert copy.folder.is_relative_to(tmp_path / "second")
    assert (copy.folder / "deep" / "words.txt").read_text() == "many words\n" * 1000
    fake.trouble("download", "refused", status=404, skip=1, times=ENDLESS)  # all but the manifest
    assert find(bucket, "words", FINGERPRINT) == made
    fake.peace()
    (copy.folder / "none").write_bytes(b"some")
    assert find(bucket, "words", FINGERPRINT) == made
    assert (copy.folder / "none").read_bytes() == b""


def test_an_output_that_is_not_the_one_that_was_made_is_refused(
    bucket: Store, fake: fake_gcs.FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(bucket, "words", FINGERPRINT, write, {})
    machine(monkeypatch, tmp_path / "second")
    [name] = [name for name in fake.buckets["jobs"] if name.endswith("words.txt")]
    stored = fake.buckets["jobs"][name]
    stored.data = stored.data[::-1]
    with pytest.raises(artifacts.BadOutput, match=r"words.txt' is not the one that was made"):
        find(bucket, "words", FINGERPRINT)
    bucket.create(f"{made.manifest.folder}/more", b"")
    with pytest.raises(
        artifacts.BadOutput, match=r"gs://jobs/lab/steps/.*'more' is not in its man"
    ):
        find(bucket, "words", FINGERPRINT, check=False)


def test_an_output_of_no_files_is_one_too(bucket: Store, tmp_path: Path) -> None:
    for store in (bucket, Store(tmp_path / "store")):
        made = make(store, "nothing", FINGERPRINT, lambda _: None, {})
        assert find(store, "nothing", FINGERPRINT) == made
        assert not list(made.folder.iterdir())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"status": 403, "message": "ada may not write"}, "not accepted .*ada may not write"),
        ({"status": 503, "message": "We are sorry."}, "503: We are sorry"),
    ],
    ids=["wrong credentials", "an outage"],
)
def test_an_upload_that_fails_makes_nothing_and_the_next_one_does(
    bucket: Store, fake: fake_gcs.FakeGcs, trouble: dict[str, object], words: str
) -> None:
    def build(out: Path) -> None:
        write(out)
        fake.trouble("insert", "refused", times=ENDLESS, **trouble)

    with pytest.raises(MakingFailed, match=words):
        make(bucket, "words", FINGERPRINT, build, {})
    fake.peace()
    assert find(bucket, "words", FINGERPRINT) is None
    clock = iter(range(0, 10_000, 50))  # its maker could not say that it has failed
    made = make(bucket, "words", FINGERPRINT, write, {}, monotonic=lambda: next(clock))
    assert made.manifest.generation == 2


@pytest.mark.usefixtures("impatient")
def test_a_bucket_that_vanishes_in_the_middle_is_said_and_makes_nothing(
    bucket: Store, fake: fake_gcs.FakeGcs
) -> None:
    def build(out: Path) -> None:
        write(out)
        del fake.buckets["jobs"]

    with pytest.raises(MakingFailed, match="no such bucket"):
        make(bucket, "words", FINGERPRINT, build, {})
    with pytest.raises(StoreError, match="no such bucket"):
        find(bucket, "words", FINGERPRINT)


@pytest.mark.slow
def test_a_graph_in_a_bucket_has_the_bytes_that_it_has_on_disk(
    bucket: Store, tmp_path: Path
) -> None:
    disk = Store(tmp_path / "store")
    there = made(disk, planned(tmp_path, disk))
    here = made(bucket, planned(tmp_path, bucket))
    assert {n: x.manifest.files for n, x in here.items()} == {
        n: x.manifest.files for n, x in there.items()
    }


MAKE = """
import sys
from pathlib import Path
from runner.planning import planner
from runner.schema import record
from runner.store.store import Store
from runner.worker import executor

plan = record.Plan.model_validate_json(Path(sys.argv[1]).read_bytes())
store = Store("gs://jobs/lab", make=False)
code = store.fetch(planner.code_folder(plan))
executor.make(store, "train", plan.steps, plan.kinds, code, sys.argv[2], stale_after=4.0)
"""


@pytest.mark.slow
def test_a_step_whose_machine_died_goes_on_elsewhere_and_ends_with_the_same_bytes(
    bucket: Store, fake: fake_gcs.FakeGcs, tmp_path: Path
) -> None:
    disk = Store(tmp_path / "store")
    steps = GRAPH.replace("num_train_steps: 8", "num_train_steps: 200")
    undisturbed = made(disk, planned(tmp_path, disk, steps), "train")["train"]
    plan = planned(tmp_path, bucket, steps)
    made(bucket, plan, "tokens")
    (tmp_path / "plan.json").write_bytes(plan.canonical())

    def start(name: str) -> "subprocess.Popen[bytes]":
        own = {"REGATTA_CACHE": str(tmp_path / name)}
        command = [sys.executable, "-c", MAKE, str(tmp_path / "plan.json"), name]
        return subprocess.Popen(command, cwd=paths.LAB, env=os.environ | own)

    first = start("first")
    deadline = time.monotonic() + 120
    while not saved(fake.buckets["jobs"]):
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.01)
    first.kill()
    first.wait()
    assert start("second").wait(200) == 0
    step = plan.steps["train"]
    found = find(bucket, step.store, step.fingerprint)
    assert found
    assert found.manifest.generation == 2
    assert found.manifest.files == undisturbed.manifest.files
    [curve] = (tmp_path / "second").glob("*/steps/*/*/2-*.scratch/curve/000000.jsonl")
    assert json.loads(curve.read_text().partition("\n")[0])["step"] > 4, (
        "where the first one's was saved"
    )


def test_own_code_over_several_hosts_is_refused_in_a_bucket_in_words(bucket: Store) -> None:
    from runner.worker import multi_host_step

    job = Job("f", {}, {}, "", "", "/own", KINDS["cpu"], 2, own=("own:f",), isolation="bubblewrap")
    with pytest.raises(MakingFailed, match=r"train takes several processes of own code.*on a disk"):
        multi_host_step.train(bucket, "train", {}, job)


# ── Commands ─────────────────────────────────────────────────────────────────────────────────


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, [str(word) for word in words])


@pytest.mark.usefixtures("impatient")
def test_commands_take_a_bucket_and_say_what_is_wrong_with_it(
    fake: fake_gcs.FakeGcs, tmp_path: Path
) -> None:
    folder = declare(tmp_path / "tiny")
    places = ("--store", "gs://records/lab", "--jobs", "gs://jobs/lab")
    assert ask("plan", folder, *places).exit_code == 0
    assert fake.buckets["records"] == {}, "to plan makes no store"
    for words in (("show", "x0"), ("reproduce", "x0")):
        answer = ask(*words, *places)
        assert (answer.exit_code, "there is no store at gs://records/lab" in answer.stderr) == (
            2,
            True,
        )
    Store("gs://records/lab", jobs="gs://jobs/lab")
    answer = ask("show", "x0", *places)
    assert (
        answer.exit_code,
        "gs://records/lab has no execution or experiment x0" in answer.stderr,
    ) == (
        2,
        True,
    )
    fake.trouble("download", "refused", status=403, message="ada may not read", times=ENDLESS)
    for words in (("plan", folder), ("run", folder), ("show", "x0"), ("reproduce", "x0")):
        answer = ask(*words, *places)
        assert (answer.exit_code, "ada may not read" in answer.stderr) == (2, True), answer.output
