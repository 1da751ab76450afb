"""Makers that stop where a test says: in threads on virtual clocks, or as processes of their own.

A trace is a list of moves: who runs, up to which point. Points are before and after each effect
on the store (`before end`), before each reading of it (`read manifest`), in the middle of a build
(`half`, `built`), and where one who waits goes to sleep (`sleep`).
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.store.artifacts import Made, MakingFailed, make
from runner.store.store import Store

NAME, FINGERPRINT = "tokens", "0123456789abcdef" * 4
KILL, END = "is killed", "goes on to its end"
Reach = Callable[[str], None]


@dataclass(frozen=True)
class Trace:
    """Moves, and whose bytes all get that come to their end, in which generation."""

    moves: list[tuple[str, str]]
    wrote: str
    generation: int
    failing: str = ""  # whose builds raise


# Whoever is not moved sleeps, however long the others take.
TRACES = {
    "a maker killed in the middle is followed by the next generation": Trace(
        [("a", "half"), ("a", KILL), ("b", END)], "b", 2
    ),
    "a maker killed when it has only just begun is followed": Trace(
        [("a", "after start"), ("a", KILL), ("b", END)], "b", 2
    ),
    "an output nobody was told of does not count": Trace(
        [("a", "before end"), ("a", KILL), ("b", END)], "b", 2
    ),
    "an output that was ended counts although its maker died before the manifest": Trace(
        [("a", "before manifest"), ("a", KILL), ("b", END)], "a", 1
    ),
    "the manifest of a maker that sleeps is put there by who looks": Trace(
        [("a", "before manifest"), ("b", END), ("a", END)], "a", 1
    ),
    "a maker that slept through another's work takes its output": Trace(
        [("a", "half"), ("b", END), ("a", END)], "b", 2
    ),
    "a late maker is refused even where it slept just before its last word": Trace(
        [("a", "before end"), ("b", "half"), ("a", "sleep"), ("b", END), ("a", END)], "b", 2
    ),
    "a late maker puts the manifest of its successor there": Trace(
        [("a", "before end"), ("b", "before manifest"), ("a", END), ("b", END)], "b", 2
    ),
    "a watcher that slept before it took over is refused": Trace(
        [("a", "half"), ("b", "before end"), ("a", END), ("b", END)], "a", 1
    ),
    "of two watchers that take over at once one makes": Trace(
        [("a", "half"), ("b", "before end"), ("c", END), ("b", END), ("a", END)], "c", 2
    ),
    "a late maker goes on where the one that took over from it died": Trace(
        [("a", "half"), ("b", "after end"), ("b", KILL), ("a", END)], "a", 2
    ),
    "a third generation follows two dead ones": Trace(
        [("a", "half"), ("b", "half"), ("b", KILL), ("c", END), ("a", END)], "c", 3
    ),
    "one that slept before it began finds all done": Trace(
        [("b", "before start"), ("a", END), ("b", END)], "a", 1
    ),
    "who waits takes its turn at once when the maker fails": Trace(
        [("a", "half"), ("b", "sleep"), ("a", END), ("b", END)], "b", 2, failing="a"
    ),
}


class SteppingStore(Store):
    """A store that says where its user is: before and after each effect, before each reading."""

    def __init__(self, root: Path, reach: Reach) -> None:
        self._reach = reach
        super().__init__(root)

    def create(self, name: str, data: bytes, *, lasting: bool = True) -> bool:
        what = _what(name)
        self._reach(f"before {what}")
        created = super().create(name, data, lasting=lasting)
        self._reach(f"after {what}")
        return created

    def peek(self, name: str, most: int | None = None) -> bytes | None:
        self._reach(f"read {_what(name)}")
        return super().peek(name, most)


def _what(name: str) -> str:
    """`leases/steps/…/2/beat-000000001.json` → `beat`."""
    return name.rpartition("/")[2].removesuffix(".json").partition("-")[0]


def text_of(who: str) -> str:
    """What `who` writes into each of its files."""
    return f"{who} wrote this line\n" * 40


def write(folder: Path, text: str, reach: Reach, failing: bool = False) -> None:
    """Two files, the first one in two halves: what was torn would show."""
    with (folder / "first").open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        reach("half")
        if failing:
            raise RuntimeError("shard 7 has no such column")
        file.write(text[len(text) // 2 :])
    (folder / "deep").mkdir()
    (folder / "deep" / "second").write_text(text)
    reach("built")


def read_whole(made: Made) -> str:
    """The text of an output that is whole. AssertionError for any other."""
    files = sorted(path for path in made.folder.rglob("*") if path.is_file())
    assert [path.name for path in files] == ["second", "first"]
    [text] = {path.read_text() for path in files}
    assert text == text_of(text.partition(" wrote")[0])
    return text


def act(
    root: str,
    who: str,
    text: str,
    stops: list[tuple[str, bool]],
    *,
    stale: float,
    failing: bool,
    work: float,
) -> None:
    """Take part as a process of its own, and leave `<who>.json` beside the store.

    `stops`: points, in order, at which to stop until somebody sends SIGCONT, or (True) to die.
    `work`: seconds that a build takes.
    """

    def reach(point: str) -> None:
        if stops and stops[0][0] == point:
            _, deadly = stops.pop(0)
            os.kill(os.getpid(), signal.SIGKILL if deadly else signal.SIGSTOP)

    def sleep(_: float) -> None:
        reach("sleep")
        time.sleep(0.01)

    def build(folder: Path) -> None:
        time.sleep(work)
        write(folder, text, reach, failing)

    store = SteppingStore(Path(root), reach)
    outcome: dict[str, object] = {}
    try:
        made = make(
            store,
            NAME,
            FINGERPRINT,
            build,
            {},
            by=who,
            stale_after=stale,
            sleep=sleep,
        )
        outcome = {"text": read_whole(made), "generation": made.manifest.generation}
    except MakingFailed as error:
        outcome = {"failed": str(error)}
    draft = Path(root).parent / f".{who}.json"
    draft.write_text(json.dumps(outcome))
    draft.replace(draft.with_name(f"{who}.json"))


def state(process: int) -> str:
    """The kernel's letter for a process: `T` is stopped; `` is none any more."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
