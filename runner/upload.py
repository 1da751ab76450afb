"""The lab's half of W&B: upload the runs of executions that are over.

Only the lab has a key, WANDB_API_KEY in its own environment; where it has one, it asks its
training attempts to write their runs for W&B (`runner.tracking`). What they wrote is a claim, so
`wandb sync` is given a copy of what is believed (`runner.wandb_file`). Its word is taken only when
it has left its mark beside a copy; then a record says so, and the run is not uploaded again.
Nothing here can fail an execution.
"""

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from runner import guard, record, reports, wandb_file
from runner.record import run_name
from runner.reports import Refused
from runner.store import Store
from runner.tracking import PROJECT, run_id

KEY = "WANDB_API_KEY"
# What an operator may say besides, of W&B and of the way to it.
ALSO = (
    *("WANDB_BASE_URL", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("https_proxy", "http_proxy", "no_proxy"),
)
WANDB = (sys.executable, "-m", "wandb")
SYNC_MAY_TAKE = 600.0  # seconds for the runs of one execution
LOOK_EVERY = 60.0  # seconds between two looks for executions that are over
RETRY_AFTER = 600.0  # seconds until what went wrong is tried again
MOST_FOLDERS = 1_000  # that an attempt may have written for W&B
A_LINE = 4_096  # bytes that a step takes at most in a file of W&B; some 600 is usual
A_RUN = 4 << 20  # bytes that a run takes besides

log = logging.getLogger(__name__)


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the lab can upload to W&B."""
    return bool(environment.get(KEY))


def upload(
    store: Store,
    execution: str,
    environment: Mapping[str, str] = os.environ,
    command: Sequence[str] = WANDB,
) -> tuple[list[str], list[str]]:
    """Upload the runs of `execution` that were written for W&B and are not there yet.

    Returns the runs that have been uploaded, now or before, and in sentences what could not be.
    The key is in `environment`; `command` is W&B's command line.
    """
    there: list[str] = []
    troubles: list[str] = []
    plan = record.require(store, f"executions/{execution}/execution", record.Execution).plan
    folders = _folders(store, execution)
    with tempfile.TemporaryDirectory(prefix="regatta-", ignore_cleanup_errors=True) as scratch:
        copies: dict[str, Path] = {}
        for arm, seed in plan.runs():
            run, steps = run_name(arm, seed), plan.arms[arm].train.num_train_steps
            if before := record.read(store, _path(execution, run), record.Upload):
                there += [] if before.refused else [run]
                continue
            try:
                draft = Path(scratch) / "draft"
                if _copied(folders, run_id(execution, run), steps, draft):
                    copies[run] = Path(scratch) / "runs" / f"offline-run-{run}" / "run.wandb"
                    copies[run].parent.mkdir(parents=True)
                    draft.rename(copies[run])
            except Refused as error:
                _note(store, execution, run, refused=str(error))
                troubles.append(str(error))
        if copies:
            words = _sync(Path(scratch), environment, command)
            for run, copy in copies.items():
                if copy.with_name(f"{copy.name}.synced").is_file():
                    _note(store, execution, run)
                    there.append(run)
                else:
                    troubles.append(f"{run} did not reach W&B: {words}")
    return there, troubles


def keep_uploading(store: Store, stop: threading.Event) -> None:
    """Upload what is due, again and again until `stop` is set."""
    due: dict[str, float] = {}  # when an execution is looked at again
    while wanted() and not stop.wait(LOOK_EVERY):
        for execution in record.names(store, "executions"):
            if stop.is_set() or due.get(execution, 0) > time.monotonic():
                continue
            troubles: list[str] = []
            try:
                if not record.read(store, f"executions/{execution}/result", record.Result):
                    continue
                _, troubles = upload(store, execution)
            except Exception as error:  # a full disk, say
                troubles = [repr(error)]
            for trouble in troubles:
                log.warning("%s: %s", execution, trouble)
            due[execution] = time.monotonic() + RETRY_AFTER if troubles else float("inf")


def _path(execution: str, run: str) -> str:
    return f"wandb/{execution}.{run}"


def _note(store: Store, execution: str, run: str, refused: str = "") -> None:
    said = record.Upload(at=datetime.now(UTC), id=run_id(execution, run), refused=refused)
    record.write(store, _path(execution, run), said)


def _folders(store: Store, execution: str) -> list[Path]:
    """Where its training attempts wrote for W&B, newest first."""
    claims = [
        (int(name[1:]), record.require(store, f"executions/{execution}/{event}", record.Claimed))
        for event in record.names(store, f"executions/{execution}")
        for name, _, what in [event.partition(".")]
        if what == "claimed" and name.startswith("t")
    ]
    return [
        store.path(f"work/{execution}.t{number}-{claimed.nonce}/out/wandb")
        for number, claimed in sorted(claims, reverse=True, key=lambda claim: claim[0])
        if claimed.wandb
    ]


def _copied(folders: list[Path], id: str, steps: int, copy: Path) -> bool:
    """Copy what is believed of the newest file of a run. False if there is none. Raises Refused
    if none is believed; that of an attempt which was killed may be empty."""
    refusal: Refused | None = None
    for folder in folders:
        for name in reversed(reports.entries(folder, MOST_FOLDERS)):
            source = folder / name / f"run-{id}.wandb"
            if not name.endswith(f"-{id}") or (file := reports.open_report(source)) is None:
                continue
            with file, copy.open("wb") as target:
                try:
                    wandb_file.copy(file, target, id, A_RUN + steps * A_LINE)
                    return True
                except wandb_file.NotBelieved as error:
                    words = f"{folder.parents[1].name}, {name}: {error}"
                    refusal = refusal or Refused(words)
    if refusal:
        raise refusal
    return False


def _sync(scratch: Path, environment: Mapping[str, str], command: Sequence[str]) -> str:
    """Let W&B have what lies in `scratch/runs`. Returns its last words."""
    home, output = scratch / "home", scratch / "output"
    kept = {name: environment[name] for name in (KEY, *ALSO) if name in environment}
    kept |= {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        "WANDB_ERROR_REPORTING": "false",
    }
    entity = environment.get("WANDB_ENTITY")
    whose = ["--project", environment.get("WANDB_PROJECT") or PROJECT]
    whose += ["--entity", entity] if entity else []
    arguments = [*command, "sync", *whose, str(scratch / "runs")]
    with guard.kept(arguments, home, output, kept) as keeper:
        try:
            keeper.wait(SYNC_MAY_TAKE)
        except subprocess.TimeoutExpired:
            return f"no answer within {SYNC_MAY_TAKE:.0f} s"
    words = " ".join(output.read_text(errors="replace").split())
    return words.replace(environment[KEY], "…")[-300:]
