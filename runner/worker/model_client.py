"""Asks a model of the experiment's own for logits, of which no code runs here. One child under
bubblewrap (`runner.worker.builtin.model_server`) imports that code and leaves the model's program,
without a token in sight. Another one is given the program, the parameters and the questions as they
come, and nothing that the first has left; a process of it answers the questions of one turn only.

A child is watched by this process's main thread, as `runner.isolation.bubblewrap` wants it, while
whoever asks sits in another one."""

import math
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from runner.isolation import bubblewrap
from runner.lib import bounds, untrusted_files
from runner.schema.devices import KINDS
from runner.schema.record import Resources
from runner.worker.builtin.look_ahead_probe import Program
from runner.worker.builtin.model_server import (
    ALL,
    END,
    HEADER,
    LOG,
    PROGRAM,
    WHY,
    Header,
    Task,
    of_turn,
    question,
)
from runner.worker.builtin.own_code_errors import BadOwnCode
from runner.worker.builtin.params_file import PARAMS
from runner.worker.builtin.programs import MAX_PROGRAM
from runner.worker.builtin.trained import NOT_PLANNED, Planned

MAX_HEADER = 1 << 16  # bytes
MAX_EARLY = 1 << 17  # bytes that are kept before they are asked for
MAX_WHY = 2_000  # characters
EVERYTHING = 1 << 62
T = TypeVar("T")


class Asker:
    """Starts children for the models of one step."""

    def __init__(
        self,
        models: Mapping[str, Planned],
        own: tuple[str, ...],
        code: Path,
        scratch: Path,
        resources: Resources,
        limits: bubblewrap.Limits,
    ) -> None:
        self.models = models  # by label
        self._own = own  # the functions that the step was planned with
        self._code, self._scratch, self._resources = code, scratch, resources
        # Logits are no log: there are as many of them as are asked for.
        self._limits = replace(limits, printed=EVERYTHING)
        self.held = ""  # which isolation the last child had

    def export(self, model: Planned, rows: int) -> Program:
        """The model's program for batches of `rows` windows, and what its own process says of it.
        Raises BadOwnCode where that leaves neither, and CannotIsolate."""
        if model.own not in self._own:
            raise BadOwnCode(NOT_PLANNED.format(model.own))
        with self._box() as box:
            task = self._task(model, rows, box)
            self._run(task, (), box, lambda _: None, own=True)
            try:
                said = bounds.parse(Header, untrusted_files.read(box / HEADER, MAX_HEADER) or b"")
                program = (
                    b"" if said.not_exported else untrusted_files.read(box / PROGRAM, MAX_PROGRAM)
                )
            except (untrusted_files.Refused, ValueError) as error:
                raise BadOwnCode("what its process says of it cannot be read") from error
        if program is None:
            raise BadOwnCode("its process has left no program")
        return Program(program, said.not_exported, said.forward_flops_per_token, said.uncounted)

    def talk(
        self,
        model: Planned,
        folder: Path,
        rows: int,
        program: bytes,
        about: Callable[["Talk"], T],
    ) -> T:
        """What `about` makes of a talk with the program and the parameters in `folder`, in batches
        of `rows` windows; without a program, with the model's own code. Raises BadOwnCode where
        the child does not answer, CannotIsolate, and what `about` does."""
        with self._box() as box:
            asked = box.with_name("asked")
            asked.mkdir()
            file = box.with_name(PROGRAM)
            file.write_bytes(program)
            talk = Talk(asked, int(model.config["vocab_size"]))
            task = self._task(model, rows, box).model_copy(
                update={
                    "model": str(folder),
                    "questions": str(asked),
                    "program": str(file) if program else "",
                }
            )
            reads = asked, folder / PARAMS, file
            with ThreadPoolExecutor(1) as pool:
                outcome = pool.submit(_to_the_end, about, talk)
                try:
                    self._run(task, reads, box, talk.heard, own=not program)
                finally:
                    talk.over()
            return outcome.result()

    @contextmanager
    def _box(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._scratch) as place:
            box = Path(place, "box")
            box.mkdir()
            yield box

    def _task(self, model: Planned, rows: int, box: Path) -> Task:
        return Task(
            config=dict(model.config),
            own=model.own,
            code=str(bubblewrap.OWN),
            rows=rows,
            box=str(box),
            resources=self._resources,
        )

    def _run(
        self,
        task: Task,
        reads: tuple[Path, ...],
        box: Path,
        keep: Callable[[bytes], Any],
        *,
        own: bool,
    ) -> None:
        """`own`: the child is shown the experiment's own code, too."""
        ended = bubblewrap.run(
            bubblewrap.Box(
                own=self._code if own else None,
                reads=reads,
                writes=((box, box),),
                folder=box,
                accelerator=KINDS[self._resources.kind].platform != "cpu",
            ),
            ["runner.worker.builtin.model_server"],
            self._limits,
            given=task.canonical(),
            keep=keep,
            stderr=False,
        )
        self.held = ended.held
        _show(box / LOG)
        if ended.why or ended.code:
            raise BadOwnCode(
                ended.why
                or untrusted_files.words(box / WHY, MAX_WHY)
                or f"it ended with {ended.code}"
            )


def _to_the_end(about: Callable[["Talk"], T], talk: "Talk") -> T:
    try:
        return about(talk)
    finally:
        talk.end()


class Talk:
    """Questions to one child, and its answers, each to the last question."""

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
        table = np.full((rows, 1 + tokens_BS.shape[1]), ALL, np.int32)
        table[:, 1:] = tokens_BS
        if positions_B is not None:
            table[:, 0] = positions_B
        shape = (*(tokens_BS.shape if positions_B is None else (rows,)), self._vocab)
        draft = self._asked.with_name("draft.npy")
        np.save(draft, table)
        with self._lock:
            self._waits_for = 4 * math.prod(shape)
            self._hand_over()
        # It is there whole, or not at all.
        draft.replace(of_turn(self._asked, self._turn) / question(self._number))
        self._number += 1
        found = self._heard.get()
        if found is None:
            raise BadOwnCode("its process ended before it had answered")
        return np.frombuffer(found, "<f4").reshape(shape)

    def heard(self, block: bytes) -> None:
        """What the child has printed. Called by the thread that watches it."""
        with self._lock:
            if len(self._bytes) <= MAX_EARLY + self._waits_for:  # or it talks without being asked
                self._bytes += block
            self._hand_over()

    def _hand_over(self) -> None:
        if (size := self._waits_for) and len(self._bytes) >= size:
            self._waits_for = 0
            self._heard.put(bytes(self._bytes[:size]))
            del self._bytes[:size]

    def anew(self) -> None:
        """Have another process answer from here on, which has seen nothing of what was asked."""
        of_turn(self._asked, self._turn + 1).mkdir()
        shutil.rmtree(of_turn(self._asked, self._turn))
        self._turn, self._number = self._turn + 1, 0

    def end(self) -> None:
        """Tell the child that there are no more questions."""
        (self._asked / END).touch()

    def over(self) -> None:
        """The child has ended. Called by the thread that watched it."""
        self._heard.put(None)


def _show(log: Path) -> None:
    """What the model has printed, into the step's log."""
    try:
        os.write(1, untrusted_files.read(log, bubblewrap.USUAL.printed) or b"")
    except untrusted_files.Refused as error:
        print(error)
