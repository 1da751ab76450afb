"""Booby-trapped experiments (`tests/traps`) as own steps under bubblewrap: none gets anywhere."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.isolation import bubblewrap
from runner.isolation.bubblewrap import Limits
from runner.lib import untrusted_files
from runner.lib.problems import BadExperiment
from runner.planning import lockfile, planner
from runner.schema import job_reports, step_graph
from runner.spec import declaration
from runner.store.artifacts import Made, MakingFailed
from runner.store.scratch_paths import BOX, LOG, RECEIPT, SHARED, WHY
from runner.store.store import Store
from runner.worker import executor, main, shard_jobs, step_process
from runner.worker.texts import shards

TRAPS = Path(__file__).parents[2] / "traps"
CANARY = "canary-0d9c2f52-of-a-held-secret"
SMALL = Limits(
    memory=256 << 20, tasks=100, file=16 << 20, written=64 << 20, seconds=30, printed=1 << 20
)

SHORT = replace(SMALL, seconds=4)

MANY_SHARDS = """
def step(config, inputs, out):
    for n in range(3):
        (out / f"train.{n:05d}.jsonl").write_text('{"text": "abc"}\\n')
    (out / "validation.jsonl").write_text('{"text": "abc"}\\n')
"""

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.probe()),
    reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
)


@pytest.fixture(scope="module", autouse=True)
def spring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file that a trap makes if it springs. The server of steps has this environment."""
    spring = tmp_path_factory.mktemp("spring") / "sprung"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGATTA_CANARY", CANARY)
        patch.setenv("RAY_AUTH_TOKEN_PATH", "/a/token")
        patch.setenv("REGATTA_TRAP", str(spring))
        patch.setattr(shard_jobs, "_server", shard_jobs.StepServer())
        yield spring
    assert not spring.exists()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with what a lab holds, beside keys."""
    (tmp_path / "secrets").mkdir()
    for name in ("token", "key.pem"):
        (tmp_path / "secrets" / name).write_text(CANARY)
    store = Store(tmp_path / "store")
    store.create("records/executions/x1/execution.json", b"{}")
    store.create("work/x1.t1-0/out/other.json", b"{}")
    store.create("steps/other/0123/made.bin", b"{}")
    return store


def planned(store: Store, tmp_path: Path, trap: str, **config: Any) -> Any:
    """The plan of a trap's folder, of one step; where it has an input, of two."""
    folder = tmp_path / trap
    if not folder.exists():
        folder.mkdir()
        for path in (TRAPS / trap).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    step: dict[str, Any] = {"do": "own:step", "config": config}
    steps = {"a": step}
    if trap == "writes":
        (folder / "before.py").write_text("def step(config, inputs, out): pass\n")
        steps = {"before": {"do": "before:step"}, "a": step | {"inputs": {"before": "before"}}}
    declared = {"title": "A trap", "resources": {"kind": "cpu"}, "steps": steps}
    (folder / "experiment.yaml").write_text(json.dumps(declared))
    return planner.plan_folder(folder, store)


def sprung(
    store: Store, tmp_path: Path, trap: str, limits: Limits = SMALL, **config: Any
) -> tuple[Made, Path]:
    """The output of the trap's step, and its scratch folder. Raises MakingFailed."""
    plan = planned(store, tmp_path, trap, **config)
    code = store.local(planner.code_folder(plan))
    terms = executor.Terms("bubblewrap", limits)
    for name in step_graph.order({name: step.needs for name, step in plan.steps.items()}):
        made = executor.make(store, name, plan.steps, plan.kinds, code, "x1", terms=terms)
    return made, made.folder.with_name(f"{made.folder.name}.scratch")


def scratch(store: Store) -> Path:
    """The scratch folder of the only step `a`, which was not made."""
    (found,) = store.local("steps").glob("*/*/*.scratch")
    return found


def reached(made: Made) -> list[str]:
    return list(json.loads((made.folder / "reached.json").read_text()))


def secrets(tmp_path: Path) -> list[str]:
    names = ("secrets/key.pem", "secrets/token", "store/records", "store/work/x1.t1-0")
    more = ("store/steps/other", "store/leases", "store/store.json", "sprung")
    return [str(tmp_path / name) for name in (*names, *more)]


# ── What it reaches ──────────────────────────────────────────────────────────────────────────


def test_no_key_token_record_or_other_run_can_be_read(store: Store, tmp_path: Path) -> None:
    names = ["key.pem", "token", "execution.json", "other.json", "made.bin", "passwd", "id_rsa"]
    wanted = [*secrets(tmp_path), "/etc/passwd", "/root/.ssh", str(bubblewrap.LAB / "bot")]
    made, _ = sprung(store, tmp_path, "reads", wanted=wanted, canary=CANARY, names=names)
    assert reached(made) == []


def test_nothing_can_be_written_but_its_own_folders(store: Store, tmp_path: Path) -> None:
    wanted = [str(tmp_path), str(store.local("records")), str(store.local("steps"))]
    made, _ = sprung(store, tmp_path, "writes", wanted=wanted)
    private = [place for place in reached(made) if place.startswith("/tmp/")]
    assert reached(made) == private, "its own /tmp is not the one outside"
    assert not [place for place in private if Path(place, "sprung.txt").exists()]
    assert not list(bubblewrap.LAB.glob("**/sprung.txt"))


def test_no_process_outside_can_be_signalled_traced_or_read(store: Store, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        processes = [bystander.pid, os.getpid(), os.getppid()]
        made, _ = sprung(store, tmp_path, "processes", processes=processes)
        assert reached(made) == []
        assert bystander.poll() is None
        bystander.kill()


def test_isolated_code_has_no_network(store: Store, tmp_path: Path) -> None:
    name, path = f"regatta-test-{os.getpid()}", str(tmp_path / "socket")
    with (
        socket.create_server(("0.0.0.0", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        for one, where in ((abstract, f"\0{name}"), (unix, path)):
            one.bind(where)
            one.listen()
        at = {"host": socket.gethostname(), "port": tcp.getsockname()[1]}
        made, _ = sprung(store, tmp_path, "network", name=name, path=path, **at)
    assert reached(made) == []


def test_the_kernel_refuses_what_leads_around_namespaces(store: Store, tmp_path: Path) -> None:
    assert reached(sprung(store, tmp_path, "calls")[0]) == ["its own sockets"]


def test_a_step_that_reads_own_codes_output_is_isolated_alike(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 1)  # so that each shard has a process of its own
    folder = tmp_path / "readers"
    folder.mkdir()
    (folder / "own.py").write_text(MANY_SHARDS)
    steps = {
        "made": {"do": "own:step"},
        "short": {"do": "filter", "inputs": {"text": "made"}, "config": {"most_characters": 9}},
        "tokens": {"do": "tokenize", "inputs": {"text": "short"}, "config": {"tokenizer": "byte"}},
        "labs": {"do": "tokenize", "config": {"source": "stdlib", "tokenizer": "byte"}},
    }
    declared = {"title": "Readers", "resources": {"kind": "cpu"}, "steps": steps}
    (folder / "experiment.yaml").write_text(json.dumps(declared))
    plan = planner.plan_folder(folder, store)
    assert [name for name, step in plan.steps.items() if step.private] == [
        "made",
        "short",
        "tokens",
    ]
    code, terms = store.local(planner.code_folder(plan)), executor.Terms("bubblewrap", SMALL)
    for name in ("made", "short", "tokens"):
        made = executor.make(store, name, plan.steps, plan.kinds, code, "x1", terms=terms)
        assert made.manifest.receipt["isolation"].startswith("bubblewrap "), name
    assert (made.folder / "train" / "manifest.json").is_file()


def test_cores_are_held_outside_where_others_see_it(tmp_path: Path, store: Store) -> None:
    receipt = sprung(store, tmp_path, "imports")[0].manifest.receipt
    assert len(receipt["affinity"].split(",")) == int(receipt["threads"])


# ── What it leaves ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("where", "words"), [("output", "which is no regular file"), ("scratch", "ended with 1")]
)
def test_links_in_the_output_and_for_the_log_lead_nobody_astray(
    store: Store, tmp_path: Path, where: str, words: str
) -> None:
    with pytest.raises(MakingFailed, match=words):
        sprung(store, tmp_path, "links", wanted=secrets(tmp_path), where=where)
    left = scratch(store)
    for name in (LOG, WHY, RECEIPT, *SHARED):
        assert not (left / name).is_symlink(), name
    assert (tmp_path / "secrets/key.pem").read_text() == CANARY


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("unlinked", r"it wrote [\d,]+ bytes, and 67,108,864 is the most"),
        ("deep", "it hid what it wrote from being counted"),
        ("sparse", r"it wrote 100,6\d\d,\d\d\d bytes, and 67,108,864 is the most"),
        ("setuid", "it left a file that would run as its owner"),
    ],
)
def test_hidden_writes_of_isolated_code_count(
    store: Store, tmp_path: Path, how: str, words: str
) -> None:
    with pytest.raises(MakingFailed, match=words):
        sprung(store, tmp_path, "hides", how=how)
    assert list(store.walk())  # `regatta store gc` goes through all of it
    assert not [path for path in scratch(store).iterdir() if path.is_dir()]


def test_files_beside_an_isolated_output_are_removed(store: Store, tmp_path: Path) -> None:
    _, left = sprung(store, tmp_path, "lies")
    assert not (left / BOX).exists()


def test_isolated_code_cannot_write_to_its_inputs(store: Store, tmp_path: Path) -> None:
    assert reached(sprung(store, tmp_path, "hides", how="stdin")[0]) == []


@pytest.mark.parametrize("code", [0, 1])
def test_pipes_hold_nobody_up(store: Store, tmp_path: Path, code: int) -> None:
    with pytest.raises(MakingFailed, match=r"not a regular file|ended with 1"):
        sprung(store, tmp_path, "pipes", code=code)


def test_names_that_cannot_be_printed_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(MakingFailed, match="the name of its file"):
        sprung(store, tmp_path, "names")


def test_a_part_of_a_flood_of_output_is_kept(store: Store, tmp_path: Path) -> None:
    _, left = sprung(store, tmp_path, "flood", megabytes=64)
    assert SMALL.printed < (left / LOG).stat().st_size < SMALL.printed + 1000
    assert (left / LOG).read_bytes().endswith(b"(more was printed, and is not kept)\n")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{"jax": "' + "x" * (2 << 20) + '"}', "larger than 1048576 bytes"),
        (json.dumps({str(n): "x" for n in range(1000)}), "at most 40"),
        ("[" * 200_000, "nested too deeply"),
        ('{"jax": NaN}', "no figure"),
        ("", "Expecting value"),
        (None, "before the step did"),
    ],
)
def test_a_receipt_is_believed_in_its_form_only(
    tmp_path: Path, said: str | None, words: str
) -> None:
    if said is not None:
        (tmp_path / "receipt.json").write_text(said)
    with pytest.raises(job_reports.Refused, match=words):
        shard_jobs.receipts(tmp_path / "receipt.json")


def test_the_lab_itself_reports_the_isolation(store: Store, tmp_path: Path) -> None:
    receipt = sprung(store, tmp_path, "lies")[0].manifest.receipt
    assert receipt["isolation"].startswith("bubblewrap ")
    assert f"memory {SMALL.memory >> 20} MiB " in receipt["isolation"]


def test_isolated_code_leaves_no_process(store: Store, tmp_path: Path) -> None:
    made, _ = sprung(store, tmp_path, "daemon")
    time.sleep(1.3)
    assert (made.folder / "figure.txt").read_text() == "1"


# ── What it takes ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("trap", "limits", "words"),
    [
        ("bomb", SHORT, r"it started \d+ processes and threads, and 100 is|longer than 4 s"),
        ("memory", SMALL, r"bytes of memory, and 268,435,456 is|ended by SIGKILL"),
        ("disk", SMALL, r"it wrote [\d,]+ bytes, and 67,108,864 is the most"),
        ("endless", SHORT, "it took longer than 4 s"),
    ],
)
def test_exceeding_a_limit_ends_the_whole_box(
    store: Store, tmp_path: Path, trap: str, limits: Limits, words: str
) -> None:
    with pytest.raises(MakingFailed, match=words):
        sprung(store, tmp_path, trap, limits)
    assert not list(store.local("steps").glob("*/*/manifest.json"))


# ── Before approval ──────────────────────────────────────────────────────────────────────────


def test_planning_runs_nothing_of_what_it_reads(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spring: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for trap in sorted(path.name for path in TRAPS.iterdir() if (path / "own.py").is_file()):
        before = set(sys.modules)
        folder = tmp_path / trap
        if trap == "tags":
            with pytest.raises(BadExperiment):
                declaration.load(TRAPS / trap)
        elif trap == "compiled":
            with pytest.raises(BadExperiment, match="regatta compile"):
                planner.plan_folder(TRAPS / trap, store)
        else:
            planned(store, tmp_path, trap)
        assert not spring.exists(), trap
        assert not {name for name in set(sys.modules) - before if name in ("own", "sitecustomize")}
        assert not list(folder.glob("**/*.pyc"))


def test_nothing_but_what_is_reached_goes_into_the_job(store: Store, tmp_path: Path) -> None:
    plan = planned(store, tmp_path, "imports")
    kept = store.local(planner.code_folder(plan))
    assert [found.name for found in kept.rglob("*")] == ["own.py"]


def test_a_declaration_in_python_is_compiled_where_it_reaches_nothing(
    tmp_path: Path, spring: Path
) -> None:
    folder = tmp_path / "compiled"
    folder.mkdir()
    for name in ("experiment.py", "own.py"):
        (folder / name).write_bytes((TRAPS / "compiled" / name).read_bytes())
    said = lockfile.compiled(folder, isolated=True)
    assert "It saw nothing" in said
    assert not spring.exists()
    (folder / declaration.LOCK_NAME).write_text(said)
    lockfile.check(folder, isolated=True)


# ── Without ──────────────────────────────────────────────────────────────────────────────────


def test_without_a_word_on_isolation_own_code_is_not_run(store: Store, tmp_path: Path) -> None:
    plan = planned(store, tmp_path, "imports")
    code = store.local(planner.code_folder(plan))
    with pytest.raises(MakingFailed, match="nobody has said how"):
        executor.make(store, "a", plan.steps, plan.kinds, code, "x1")


@pytest.mark.parametrize("trap", ["imports", "compiled"])
def test_a_job_that_was_told_of_no_isolation_refuses_own_code(
    store: Store, tmp_path: Path, trap: str
) -> None:
    if trap == "compiled":
        folder = tmp_path / trap
        folder.mkdir()
        for path in (TRAPS / trap).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / declaration.LOCK_NAME).write_text(lockfile.compiled(folder, isolated=True))
        plan = planner.plan_folder(folder, store)
    else:
        plan = planned(store, tmp_path, trap)
    job = job_reports.AttemptSpec(attempt="x1.t1", nonce="0" * 16, plan=plan)
    with pytest.raises(MakingFailed, match="nobody has said how"):
        main._steps(store, job)


def test_without_bubblewrap_nothing_runs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(shard_jobs, "_server", shard_jobs.StepServer())
    with pytest.raises(MakingFailed, match="Install it"):
        sprung(store, tmp_path, "imports")
    assert "Install it" in bubblewrap.probe.__wrapped__()


@pytest.mark.parametrize("how", ["trusted", "own machine"])
def test_the_receipt_says_where_nothing_was_isolated(
    store: Store, tmp_path: Path, how: Any
) -> None:
    plan = planned(store, tmp_path, "imports")
    terms = executor.Terms(how)
    code = store.local(planner.code_folder(plan))
    made = executor.make(store, "a", plan.steps, plan.kinds, code, "x1", terms=terms)
    assert made.manifest.receipt["isolation"] == step_process.NOT_ISOLATED[how]


@pytest.mark.parametrize("how", ["bubblewrap", "trusted"])
@pytest.mark.parametrize(("words", "odd"), [("buffer 1.2 GB; " * 200, 0), ("no file", 1)])
def test_a_reason_is_told_however_long_or_odd_it_is(
    store: Store, tmp_path: Path, how: Any, words: str, odd: int
) -> None:
    plan = planned(store, tmp_path, "reasons", words=words, odd=odd)
    code = store.local(planner.code_folder(plan))
    with pytest.raises(MakingFailed, match=f"ValueError: {words[:14]}"):
        executor.make(
            store, "a", plan.steps, plan.kinds, code, "x1", terms=executor.Terms(how, SMALL)
        )


def test_a_silent_failure_of_bubblewrap_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "probe", lambda: "bubblewrap does not work here (no)")
    why = step_process.reason_isolated(tmp_path / "why.txt", bubblewrap.Ended(1))
    assert why == "bubblewrap does not work here (no)"


def test_a_reason_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "why.txt").write_text("x " * 10)
    assert untrusted_files.words(tmp_path / "why.txt", 50) == ("x " * 10).strip()
    os.mkfifo(tmp_path / "pipe")
    assert untrusted_files.words(tmp_path / "pipe", 50) == ""
    (tmp_path / "link").symlink_to(tmp_path / "why.txt")
    assert untrusted_files.words(tmp_path / "link", 50) == ""
    with pytest.raises(job_reports.Refused):
        shard_jobs.receipts(tmp_path / "pipe")
