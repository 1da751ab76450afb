"""Asks an own model for logits without running its code here. One child under bubblewrap
(`runner.worker.models.model_server`) imports that code and exports the model's program, without
any token. Another child gets the program, the parameters and the questions, and nothing else from
the first; each of its processes answers the questions of one turn only.

This process's main thread watches the child, as `runner.isolation.bubblewrap` requires; the
questions come from another thread."""

import math
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from runner.isolation import bubblewrap
from runner.lib import bounds, untrusted_files
from runner.lib.own_code_errors import BadOwnCode
from runner.store.scratch_paths import LOG, WHY
from runner.worker.models import model_server
from runner.worker.models.look_ahead_probe import Program
from runner.worker.models.model_server import HEADER, PROGRAM, Header, Task, of_turn, question
from runner.worker.models.params_file import PARAMS
from runner.worker.models.programs import MAX_PROGRAM
from runner.worker.models.trained import NOT_PLANNED, Planned
from runner.worker.step_process import Job, reason_isolated

MAX_HEADER = 1 << 16  # bytes
MAX_EARLY = 1 << 17  # bytes that are buffered before anybody asks for them
EVERYTHING = 1 << 62
T = TypeVar("T")


class Asker:
    """Starts children for the models of one step."""

    def __init__(self, job: Job) -> None:
        self.models = {label: Planned(*of) for label, of in job.models.items()}
        self.exact = job.devices.platform == "cpu"
        self._job = job
        # Logits are no log; the caller limits their number.
        self._limits = replace(job.limits, printed=EVERYTHING)
        self.held = ""  # the isolation of the last child

    def export(self, model: Planned, rows: int) -> Program:
        """The model's program for batches of `rows` windows, and what its own process reports.
        Raises BadOwnCode if there is neither, and CannotIsolate."""
        if model.own not in self._job.own:
            raise BadOwnCode(NOT_PLANNED.format(model.own))
        with self._box() as box:
            self._run(self._task(model, rows, box), lambda _: None)
            program: bytes | None = b""
            try:
                said = bounds.parse(Header, untrusted_files.read(box / HEADER, MAX_HEADER) or b"")
                if not said.not_exported:
                    program = untrusted_files.read(box / PROGRAM, MAX_PROGRAM)
            except (untrusted_files.Refused, ValueError) as error:
                raise BadOwnCode("what its process says of it cannot be read") from error
        if program is None:
            raise BadOwnCode("its process has left no program")
        return Program(program, said.not_exported, said.forward_flops_per_token, said.uncounted)

    def talk(
        self, model: Planned, folder: Path, rows: int, program: bytes, about: Callable[["Talk"], T]
    ) -> T:
        """The result of `about` for a conversation with the program and the parameters in `folder`,
        in batches of `rows` windows; without a program, with the model's own code. Raises
        BadOwnCode if the child does not answer, CannotIsolate, and what `about` raises."""
        with self._box() as box:
            asked = box.with_name("asked")
            asked.mkdir()
            given = {"model": str(folder), "questions": str(asked)}
            if program:
                given["program"] = str(box.with_name(PROGRAM))
                Path(given["program"]).write_bytes(program)
            talk = Talk(asked, int(model.config["vocab_size"]))
            with ThreadPoolExecutor(1) as pool:
                outcome = pool.submit(_to_the_end, about, talk)
                try:
                    self._run(self._task(model, rows, box, **given), talk.heard)
                finally:
                    talk.over()
            return outcome.result()

    @contextmanager
    def _box(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._job.scratch) as place:
            box = Path(place, "box")
            box.mkdir()
            yield box

    def _task(self, planned: Planned, rows: int, box: Path, **given: str) -> Task:
        return Task(
            config=dict(planned.config),
            own=planned.own,
            rows=rows,
            box=str(box),
            devices=self._job.devices,
            count=self._job.count,
            **given,
        )

    def _run(self, task: Task, keep: Callable[[bytes], Any]) -> None:
        """The child sees what its task names; it sees the own code only if it has no program."""
        box, reads = Path(task.box), list[Path]()
        if task.questions:
            reads = [Path(task.questions), Path(task.model, PARAMS)]
        if task.program:
            reads.append(Path(task.program))
        ended = bubblewrap.run(
            bubblewrap.Box(
                own=None if task.program else Path(self._job.code),
                reads=tuple(reads),
                writes=((box, box),),
                folder=box,
                accelerator=self._job.devices.platform != "cpu",
            ),
            [model_server.__name__],
            self._limits,
            given=task.canonical(),
            keep=keep,
            stderr=False,
        )
        self.held = ended.held
        _show(box / LOG)
        if ended.why or ended.code:
            raise BadOwnCode(reason_isolated(box / WHY, ended))


def _to_the_end(about: Callable[["Talk"], T], talk: "Talk") -> T:
    try:
        return about(talk)
    finally:
        talk.end()


class Talk:
    """Questions to one child, and its answer to each."""

    def __init__(self, asked: Path, vocab_size: int) -> None:
        self._asked, self._vocab = asked, vocab_size
        self._lock = threading.Lock()
        self._turn = self._number = 0
        of_turn(asked, 0).mkdir()
        self._waits_for = 0  # bytes
        self._bytes = bytearray()
        self._heard: queue.Queue[bytes | None] = queue.Queue()

    def logits(self, tokens_BS: np.ndarray, positions_B: np.ndarray | None = None) -> np.ndarray:
        """The model's logits of these windows: (B, S, V), or at one position of each (B, V)."""
        rows = len(tokens_BS)
        table = np.full((rows, 1 + tokens_BS.shape[1]), model_server.ALL, np.int32)
        table[:, 1:] = tokens_BS
        if positions_B is not None:
            table[:, 0] = positions_B
        shape = (*(tokens_BS.shape if positions_B is None else (rows,)), self._vocab)
        draft = self._asked.with_name("draft.npy")
        np.save(draft, table)
        with self._lock:
            self._waits_for = 4 * math.prod(shape)
            self._hand_over()
        asked = of_turn(self._asked, self._turn) / question(self._number)
        draft.replace(asked)  # atomic
        self._number += 1
        found = self._heard.get()
        asked.unlink(missing_ok=True)  # there may be a hundred thousand
        if found is None:
            raise BadOwnCode("its process ended before it had answered")
        return np.frombuffer(found, "<f4").reshape(shape)

    def heard(self, block: bytes) -> None:
        """Take the child's output. Called by the thread that watches it."""
        with self._lock:
            if len(self._bytes) <= MAX_EARLY + self._waits_for:  # otherwise nobody asked for it
                self._bytes += block
            self._hand_over()

    def _hand_over(self) -> None:
        if (size := self._waits_for) and len(self._bytes) >= size:
            self._waits_for = 0
            self._heard.put(bytes(self._bytes[:size]))
            del self._bytes[:size]

    def anew(self) -> None:
        """Let another process answer from here on, which knows nothing of earlier questions."""
        of_turn(self._asked, self._turn + 1).mkdir()
        shutil.rmtree(of_turn(self._asked, self._turn))
        self._turn, self._number = self._turn + 1, 0

    def end(self) -> None:
        """Tell the child that there are no more questions."""
        (self._asked / model_server.END).touch()

    def over(self) -> None:
        """The child has ended. Called by the thread that watched it."""
        self._heard.put(None)


def _show(log: Path) -> None:
    """Copy the model's output to the step's log."""
    try:
        os.write(1, untrusted_files.read(log, bubblewrap.USUAL.printed) or b"")
    except untrusted_files.Refused as error:
        print(error)
