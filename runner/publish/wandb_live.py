"""Shows runs at W&B while they train.

For each execution that runs, a child (`runner.publish.wandb_writer`) with WANDB_API_KEY sends the
figures that passed the lab's checks. It reads nothing but what the lab tells it, and jobs get no
key. This serves to look on: when an execution has ended, `runner.publish.wandb_upload` uploads each
run whole, over what is there. Failures here cannot fail an execution.
"""

import logging
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from runner.history import run_metrics
from runner.lib.threads import meanwhile
from runner.publish import uploads, wandb_lines, wandb_upload
from runner.publish.wandb_upload import ALSO, KEY, PROJECT, WRITING
from runner.schema import record
from runner.store.store import Store

ADDRESS = re.compile(r"https?://[^\s()<>\"'\\]{1,500}")
END_MAY_TAKE = 60.0  # seconds to send what is left when an execution has ended
UNSEEN_MAY_TAKE = 5.0  # the same where W&B has not answered yet

log = logging.getLogger("regatta.wandb")


def address(store: Store, execution: str) -> str | None:
    """Where W&B shows an execution; None if it does not, or not yet."""
    known = record.read(store, _path(execution), record.Tracked)
    return known.url if known else None


def keep_uploading(store: Store, stop: threading.Event) -> None:
    """Send what runs and upload what has ended, until `stop` is set."""
    with Streams(store) as streams:

        def upload(of: Store, execution: str) -> tuple[list[str], list[str]]:
            streams.close(execution)
            return wandb_upload.upload(of, execution)

        uploads.keep(wandb_upload.wanted, upload, store, stop, streams.look)


@contextmanager
def streaming(store: Store, execution: str) -> Iterator[None]:
    """Send an execution that runs during the `with` body, if there is a key."""

    def stream(stop: threading.Event) -> None:
        try:
            with Streams(store) as streams:
                while not stop.wait(uploads.LOOK_EVERY):
                    streams.look(execution)
        except Exception as error:  # such as a full disk
            log.warning("%s is not shown at W&B while it runs: %r", execution, error)

    with meanwhile(stream) if wandb_upload.wanted() else nullcontext():
        yield


class Streams:
    """The executions that are sent now."""

    def __init__(self, store: Store, environment: Mapping[str, str] = os.environ) -> None:
        self._store, self._environment = store, environment
        self._open: dict[str, _Stream] = {}

    def __enter__(self) -> "Streams":
        return self

    def __exit__(self, *_: object) -> None:
        for execution in [*self._open]:
            self.close(execution)

    def look(self, execution: str) -> None:
        """Send the new figures of an execution that runs."""
        stream = self._open.get(execution)
        if stream is None:
            stream = self._open[execution] = _Stream(self._store, execution, self._environment)
        stream.look()

    def close(self, execution: str) -> None:
        """Send what is left of an execution, and end its child."""
        if stream := self._open.pop(execution, None):
            stream.close()


class _Stream:
    """One execution. Its child starts with the first figure that is new."""

    def __init__(self, store: Store, execution: str, environment: Mapping[str, str]) -> None:
        path = f"executions/{execution}/execution"
        self._store, self._execution, self._environment = store, execution, environment
        self._plan = record.require(store, path, record.Execution).plan
        self._sent: dict[str, int] = {}  # the newest step of each run
        self._first: dict[str, int] = {}  # the same, at the first look
        self._stack = ExitStack()
        self._scratch: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        if self._child and self._child.poll() is not None:
            return  # it has ended, and the log says so; the upload at the end does not need it
        for (arm, seed), name in self._plan.trained().items():
            self._send(arm, seed, self._plan.steps[name])
        self._note()

    def _send(self, arm: str, seed: int, step: record.PlannedStep) -> None:
        id = wandb_lines.run_id(self._execution, record.run_name(arm, seed))
        sent = self._sent.get(id, 0)
        newest = run_metrics.RECENT if sent else None
        lines = run_metrics.of_step(self._store, step, newest).lines
        if sent and lines and lines[0].step > sent + 1:  # more came than the newest chunks hold
            lines = run_metrics.of_step(self._store, step).lines
        # What was killed has no result, and never a further figure: it gets no child.
        at = lines[-1].step if lines else 0
        if at <= self._first.setdefault(id, at):
            return
        if new := [line for line in lines if line.step > sent]:
            if not sent:
                self._tell([wandb_lines.opening(self._plan, self._execution, arm, seed)])
            self._tell(wandb_lines.logged(id, new))
            self._sent[id] = new[-1].step

    def _tell(self, lines: Iterable[wandb_lines.Line]) -> None:
        if self._scratch is None:
            self._start()
        assert self._scratch
        with (self._scratch / "runs.jsonl").open("a", encoding="utf-8") as file:
            file.write(wandb_lines.text(lines))

    def _start(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="regatta-", ignore_cleanup_errors=True)
        self._scratch = Path(self._stack.enter_context(scratch))
        file = self._scratch / "runs.jsonl"
        file.touch()
        told = {name: self._environment[name] for name in (KEY, *ALSO) if name in self._environment}
        told |= {"WANDB_DIR": str(self._scratch), "WANDB_MODE": "online"}
        told["WANDB_PROJECT"] = self._environment.get("WANDB_PROJECT") or PROJECT
        told |= {"WANDB_ENTITY": x} if (x := self._environment.get("WANDB_ENTITY")) else {}
        command, output = [*WRITING, str(file)], self._scratch / "output"
        started = wandb_upload.started(command, self._scratch, output, told)
        self._child = self._stack.enter_context(started)

    def _note(self) -> None:
        """Record where W&B shows the execution."""
        if self._scratch and (file := self._scratch / "runs.jsonl.url").is_file():
            said = file.read_text(encoding="utf-8", errors="replace")
            if ADDRESS.fullmatch(said):
                tracked = record.Tracked(at=datetime.now(UTC), url=said)
                record.write(self._store, _path(self._execution), tracked)

    def close(self) -> None:
        with self._stack:
            if self._child is None:
                return
            if self._child.poll() is None:
                self.look()
                self._tell([*map(wandb_lines.closing, self._sent), wandb_lines.END])
            try:
                seen = record.read(self._store, _path(self._execution), record.Tracked)
                self._child.wait(END_MAY_TAKE if seen else UNSEEN_MAY_TAKE)
            except subprocess.TimeoutExpired:
                log.info("%s: W&B did not take the last figures in time", self._execution)


def _path(execution: str) -> str:
    return f"tracked/{execution}"
