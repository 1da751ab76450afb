"""Asks a model of the experiment's own for logits, of which no code runs here: each talk with it
begins a fresh child under bubblewrap (`runner.builtin.answers`), which sees its parameters, its
code and the questions as they come, and nothing that another child has left.

The child is watched by this process's main thread, as `runner.isolate` wants it, while whoever asks
sits in another one."""

import math
import os
import queue
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from runner import isolate, regular
from runner.builtin.answers import ALL, END, LOG, WHY, Header, Task, question
from runner.builtin.apart import Counted
from runner.builtin.blame import BadOwnCode
from runner.builtin.own_model import OWN
from runner.hardware import KINDS
from runner.record import Resources

SEEN = ("params.safetensors", "model.json", OWN)  # of what training left, whatever else lies there
MOST_HEADER = 1 << 16  # bytes
MOST_EARLY = 1 << 17  # bytes that are kept before they are asked for
MOST_WHY = 2_000  # characters
EVERYTHING = 1 << 62
T = TypeVar("T")


class Asker:
    """Starts children for the models of one step."""

    def __init__(
        self,
        own: tuple[str, ...],
        code: Path,
        scratch: Path,
        resources: Resources,
        limits: isolate.Limits,
    ) -> None:
        self._own, self._code, self._scratch = own, code, scratch
        self._resources = resources
        # Logits are no log: there are as many of them as are asked for.
        self._limits = replace(limits, printed=EVERYTHING)
        self.held = ""  # which isolation the last child had

    def talk(self, model: Path, rows: int, vocab_size: int, about: Callable[["Talk"], T]) -> T:
        """What `about` makes of a talk with the model in this folder, in batches of `rows` windows.
        Raises BadOwnCode where the child does not answer, CannotIsolate, and what `about` does."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as place:
            asked, box = Path(place, "asked"), Path(place, "box")
            asked.mkdir()
            box.mkdir()
            talk = Talk(asked, vocab_size)
            task = Task(
                own=self._own,
                model=str(model),
                code=str(isolate.OWN),
                rows=rows,
                questions=str(asked),
                box=str(box),
                resources=self._resources,
            )
            with ThreadPoolExecutor(1) as pool:
                outcome = pool.submit(_to_the_end, about, talk)
                try:
                    ended = isolate.run(
                        isolate.Box(
                            own=self._code,
                            reads=(asked, *(model / name for name in SEEN)),
                            writes=((box, box),),
                            folder=box,
                            accelerator=KINDS[self._resources.kind].platform != "cpu",
                        ),
                        ["runner.builtin.answers"],
                        self._limits,
                        given=task.canonical(),
                        keep=talk.heard,
                        stderr=False,
                    )
                finally:
                    talk.over()
            self.held = ended.held
            _show(box / LOG)
            if ended.why or ended.code:
                raise BadOwnCode(
                    ended.why or regular.words(box / WHY, MOST_WHY) or f"it ended with {ended.code}"
                )
            return outcome.result()


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
        self._number = 0
        self._waits_for = 4  # bytes: how long the header is
        self._bytes = bytearray()
        self._heard: queue.Queue[bytes | None] = queue.Queue()
        self._counted: Counted | None = None

    def counted(self) -> Counted:
        """What the child says of the model. Raises BadOwnCode where it says nothing."""
        if self._counted is None:
            size = int.from_bytes(self._answer(), "little")
            try:
                said = Header.model_validate_json(self._answer(max(1, min(size, MOST_HEADER))))
            except ValueError as error:
                raise BadOwnCode("what its process says of it cannot be read") from error
            self._counted = Counted(said.forward_flops_per_token, said.uncounted)
        return self._counted

    def logits(self, tokens_BS: np.ndarray, positions_B: np.ndarray | None = None) -> np.ndarray:
        """The model's logits of these windows: (B, S, V), or at one position of each (B, V)."""
        self.counted()
        rows = len(tokens_BS)
        table = np.full((rows, 1 + tokens_BS.shape[1]), ALL, np.int32)
        table[:, 1:] = tokens_BS
        if positions_B is not None:
            table[:, 0] = positions_B
        shape = (*(tokens_BS.shape if positions_B is None else (rows,)), self._vocab)
        draft = self._asked.with_name("draft.npy")
        np.save(draft, table)
        answer = self._answer(4 * math.prod(shape), draft)
        return np.frombuffer(answer, "<f4").reshape(shape)

    def _answer(self, size: int | None = None, draft: Path | None = None) -> bytes:
        """The next bytes of the child, to a question if there is a `draft` of one. Raises
        BadOwnCode where it ends instead."""
        with self._lock:
            if size is not None:
                self._waits_for = size
            self._hand_over()
        if draft:
            draft.replace(self._asked / question(self._number))  # it is there whole, or not at all
            self._number += 1
        found = self._heard.get()
        if found is None:
            raise BadOwnCode("its process ended before it had answered")
        return found

    def heard(self, block: bytes) -> None:
        """What the child has printed. Called by the thread that watches it."""
        with self._lock:
            if len(self._bytes) <= MOST_EARLY + self._waits_for:  # or it talks without being asked
                self._bytes += block
            self._hand_over()

    def _hand_over(self) -> None:
        if (size := self._waits_for) and len(self._bytes) >= size:
            self._waits_for = 0
            self._heard.put(bytes(self._bytes[:size]))
            del self._bytes[:size]

    def end(self) -> None:
        """Tell the child that there are no more questions."""
        (self._asked / END).touch()

    def over(self) -> None:
        """The child has ended. Called by the thread that watched it."""
        self._heard.put(None)


def _show(log: Path) -> None:
    """What the model has printed, into the step's log."""
    try:
        os.write(1, regular.read(log, isolate.USUAL.printed) or b"")
    except regular.Refused as error:
        print(error)
