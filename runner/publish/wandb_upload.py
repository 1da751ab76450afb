"""Uploads the lab's runs to W&B: they are written offline when their execution is over, then
uploaded. Before, `runner.publish.wandb_live` shows them while they run.

A child without the key writes them from the lab's own figures (`runner.publish.wandb_writer`); jobs
write nothing for W&B. `wandb sync` uploads them with WANDB_API_KEY, which only the lab's own
environment has. An upload counts as done only when W&B has left its mark beside a run's file; then
a record says so, and the run is not uploaded again. Failures here cannot fail an execution.
"""

import configparser
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from runner.lib import process_tree
from runner.publish import wandb_lines
from runner.publish.wandb_lines import run_id
from runner.schema import record
from runner.schema.record import run_name
from runner.store.store import Store

PROJECT = "regatta"
KEY = "WANDB_API_KEY"
# Other variables for W&B and its network that an operator may set.
ALSO = (
    *("WANDB_BASE_URL", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("https_proxy", "http_proxy", "no_proxy"),
)
WRITING = (sys.executable, "-m", "runner.publish.wandb_writer")
WANDB = (sys.executable, "-m", "wandb")
MAY_TAKE = 600.0  # seconds to write the runs of one execution, and as many to upload them


def mode(
    environment: Mapping[str, str] = os.environ, here: Path = Path()
) -> Literal["online", "offline", "disabled"]:
    """What WANDB_MODE and WANDB_DISABLED say, or else W&B's settings files, which `wandb offline`
    and `wandb disabled` write to the folder `here`; without a switch: online if there is a key."""
    config = environment.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb"
    files = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error, UnicodeDecodeError, OSError):
        files.read([Path(config) / "settings", here / "wandb" / "settings"])
    kept = files["default"] if files.has_section("default") else {}
    said = (environment.get("WANDB_MODE") or kept.get("mode") or "").lower()
    off = environment.get("WANDB_DISABLED") or kept.get("disabled") or ""
    if said == "disabled" or off.lower() in ("true", "1", "yes", "on"):
        return "disabled"
    if said in ("offline", "dryrun"):
        return "offline"
    return "online" if environment.get(KEY) else "disabled"


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether runs are to be sent to W&B: the lab has a key, and no switch of W&B is off."""
    return mode(environment) == "online"


def write_offline(store: Store, execution: str, folder: Path) -> tuple[list[str], str | None]:
    """Write the runs that have figures below `folder/wandb`, from where `wandb sync` sends them.
    Returns them, and the error if there is one."""
    plan = record.require(store, f"executions/{execution}/execution", record.Execution).plan
    runs = [name for of in plan.runs() if _has_figures(store, execution, name := run_name(*of))]
    with tempfile.TemporaryDirectory(prefix="regatta-", ignore_cleanup_errors=True) as scratch:
        error = _write(store, execution, runs, Path(scratch)) if runs else None
        for made in [] if error else Path(scratch).glob("wandb/offline-run-*"):
            target = folder / "wandb" / made.name  # links to logs of the child are left out
            shutil.copytree(made, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    return runs, error


def upload(
    store: Store,
    execution: str,
    environment: Mapping[str, str] = os.environ,
    command: Sequence[str] = WANDB,
) -> tuple[list[str], list[str]]:
    """Upload the runs of a finished execution that have figures and are not there yet.

    Returns the runs that are uploaded, now or before, and errors as sentences. The key is in
    `environment`; `command` is W&B's command line.
    """
    plan = record.require(store, f"executions/{execution}/execution", record.Execution).plan
    runs = [run_name(arm, seed) for arm, seed in plan.runs()]
    there = [run for run in runs if record.read(store, _path(execution, run), record.Upload)]
    due = [run for run in runs if run not in there and _has_figures(store, execution, run)]
    if not due:
        return there, []
    troubles: list[str] = []
    with tempfile.TemporaryDirectory(prefix="regatta-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)  # short: it holds Unix sockets
        if words := _write(store, execution, due, scratch):
            return there, [f"the runs could not be written for W&B: {words}"]
        words = _sync(scratch, environment, command)
        for run in due:
            id = run_id(execution, run)
            if list(scratch.glob(f"wandb/*/run-{id}.wandb.synced")):
                said = record.Upload(at=datetime.now(UTC), id=id)
                record.write(store, _path(execution, run), said)
                there.append(run)
            else:
                troubles.append(f"{run} did not reach W&B: {words}")
    return there, troubles


def _path(execution: str, run: str) -> str:
    return f"wandb/{execution}.{run}"


def _has_figures(store: Store, execution: str, run: str) -> bool:
    said = record.read(store, f"runs/{execution}.{run}", record.Run)
    return bool(said and said.curve)


def _write(store: Store, execution: str, runs: Sequence[str], scratch: Path) -> str | None:
    """Let a child write `runs` below `scratch/wandb`. Returns its error; None if there is none."""
    plan = record.require(store, f"executions/{execution}/execution", record.Execution).plan
    file = scratch / "runs.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for name in runs:
            run = record.require(store, f"runs/{execution}.{name}", record.Run)
            lines.write(wandb_lines.text(wandb_lines.whole(store, plan, run)))
        lines.write(wandb_lines.text([wandb_lines.END]))
    told = {"WANDB_DIR": str(scratch), "WANDB_MODE": "offline", "WANDB_PROJECT": PROJECT}
    code, words = _call([*WRITING, str(file)], scratch, told)
    return None if code == 0 else words[-300:] or f"exit code {code}"


def _sync(scratch: Path, environment: Mapping[str, str], command: Sequence[str]) -> str:
    """Upload `scratch/wandb` to W&B. Returns the last output."""
    told = {name: environment[name] for name in (KEY, *ALSO) if name in environment}
    whose = ["--project", environment.get("WANDB_PROJECT") or PROJECT]
    whose += ["--entity", entity] if (entity := environment.get("WANDB_ENTITY")) else []
    _, words = _call([*command, "sync", *whose, str(scratch / "wandb")], scratch, told)
    return words.replace(environment[KEY], "…")[-300:]


def started(
    command: list[str], scratch: Path, output: Path, told: Mapping[str, str]
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Start a command of W&B's with only the environment `told`, and a temporary home below
    `scratch/home`."""
    home = scratch / "home"
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        "WANDB_ERROR_REPORTING": "false",
        **told,
    }
    return process_tree.kept(command, home, output, environment)


def _call(command: list[str], scratch: Path, told: dict[str, str]) -> tuple[int, str]:
    """Run a command of W&B's. Returns its exit code and its output."""
    output = scratch / "output"
    with started(command, scratch, output, told) as keeper:
        try:
            code = keeper.wait(MAY_TAKE)
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {MAY_TAKE:.0f} s"
    return code, " ".join(output.read_text(errors="replace").split())
