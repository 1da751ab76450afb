"""The cache of step outputs: one worker makes an output, others wait for it, and every reader
checks it.

    steps/<name>/<first 16 of the fingerprint>/manifest.json   which folder counts, every digest
    steps/<name>/<first 16>/<generation>-<maker>/              what one maker wrote
    leases/steps/<name>/<first 16>/<generation>/               start.json, heartbeats, end.json

A maker is a process that makes an output; a generation is one try. A generation starts once and
ends once: as made, as failed, or as lost if its process was taken away. Its maker ends it. A
watcher also ends it as lost after it has seen no heartbeat for 45 s, or if the maker's process has
ended on the watcher's machine (`runner.lib.process_owner`). All create the same `end.json`, so only
one succeeds, and the next generation starts only after it. So a maker that is too late is refused,
even if it slept between a look at the lease and its write. `manifest.json` is copied from an end
that says made, by its maker or, if that died in between, by the next reader.

So there is one manifest, it never changes, everything it names was complete and on disk before, and
all readers get the same bytes. It is not guaranteed that only one maker works at a time: one that
was taken for dead continues, in a folder of its own, until it is refused.

On disk means synced: each file, its folder, and the names of this folder and of those around it
before the end that says made; the manifest and its name before `make` returns. So what it has
returned survives a power cut. A lease is not synced: it says who is alive, and after a power cut
nobody who wrote it is. If a power cut removes it, the generation starts again in another folder; if
it is truncated, the generation counts as lost; if it is complete, it is true, because what an end
names was synced before it. In a bucket, a maker uploads its folder before it ends the generation as
made; readers copy it once.
"""

import math
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, JsonValue

from runner.lib import process_owner
from runner.lib.base_record import Instant, Record, Sha256, since
from runner.lib.bounds import Seconds
from runner.store import digests as store_digests
from runner.store.backends import make_folder, remove_tree
from runner.store.digests import BadOutput as BadOutput
from runner.store.leases import BEAT_EVERY, STALE_AFTER, AttemptLease, LeaseWatch
from runner.store.store import Store, StoreError

LOOK_EVERY = 0.5  # seconds between two looks while waiting
MOST_WHY = 500  # characters
MOST_WORD = 4 * store_digests.MOST_LISTED  # bytes of a manifest
R = TypeVar("R", bound=Record)


class MakingFailed(Exception):
    """The output could not be made here; the message is a whole sentence."""


class MakerLost(MakingFailed):
    """The maker was taken away, by no fault of the step: another one may continue."""


class MakerPreempted(MakerLost):
    """The maker lost its machine, or was told that it would."""


class Turn(Record):
    """The current maker of a step."""

    name: str
    fingerprint: Sha256
    generation: int = Field(ge=1)
    maker: str = Field(pattern="^[0-9a-f]{16}$")  # a nonce, so that no two makers share a folder
    by: str  # the execution, for display
    host: str

    @property
    def lease(self) -> str:
        """The folder of its heartbeats, below `leases/`."""
        return f"{_step(self.name, self.fingerprint)}/{self.generation}"

    @property
    def folder(self) -> str:
        """The folder in the store that it writes to."""
        return f"{self.lease}-{self.maker}"


class Start(Turn):
    """A maker has started."""

    process: str = ""  # the maker's, by `runner.lib.process_owner`; missing in old records


class Manifest(Turn):
    """What a maker reports about its output."""

    files: dict[str, store_digests.FileDigest]  # by path relative to the folder, with `/`
    parts: dict[str, JsonValue]  # what the fingerprint covers
    receipt: dict[str, str]
    made_at: Instant
    seconds: Seconds  # duration of the build

    @property
    def output_sha256(self) -> str:
        """SHA-256 over the sorted relative paths, sizes and digests of the files."""
        return store_digests.sha256(self.files)


class End(Record):
    """How a generation ended. If it was made, with its manifest."""

    how: Literal["made", "failed", "lost"]
    why: str = ""
    manifest: Manifest | None = None
    preempted: bool = since(False)  # a lost one, whose machine was taken away
    seconds: Seconds | None = since(None)  # of a lost one that ended itself: how long it worked
    at: Instant | None = since(None)  # of a lost one: when that was recorded


CUT_OFF = End(how="lost", why="the power was cut while it was made")


@dataclass(frozen=True)
class Made:
    """A finished output: its manifest and its folder. For a store in a bucket, the folder is a copy
    on this machine, which exists after `make` or `fetch`."""

    store: Store = field(compare=False, repr=False)
    manifest: Manifest

    @property
    def folder(self) -> Path:
        """The output's folder on this machine."""
        return self.store.local(self.manifest.folder)

    def verify(self, *, digests: bool = True) -> None:
        """Raises BadOutput unless exactly the manifest's files exist, each with its digest. Without
        `digests`, and in a bucket, it reads no file and compares only sizes."""
        where = self.store.at(self.manifest.folder)
        if isinstance(where, Path):
            store_digests.verify(where, self.manifest.files, digests=digests)
        else:
            found = {x.name.removeprefix(f"{where.key}/"): x.size for x in where.walk()}
            store_digests.compare(where.as_posix(), found, self.manifest.files)

    def fetch(self) -> None:
        """Make the output available on this machine. A copy from a bucket is checked by digests,
        and copied again if it is damaged. Raises BadOutput and StoreError."""
        if isinstance(self.store.at(self.manifest.folder), Path):
            return
        try:
            self._fetch()
        except BadOutput:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._fetch()

    def _fetch(self) -> None:
        if self.manifest.files:
            self.store.fetch(self.manifest.folder)
        else:  # a bucket has no empty folders
            self.folder.mkdir(parents=True, exist_ok=True)
        store_digests.verify(self.folder, self.manifest.files)
        store_digests.settle(self.folder)  # modes and times as on the maker's disk


def find(store: Store, name: str, fingerprint: str, *, check: bool = True) -> Made | None:
    """The finished output of the step `name` with this full fingerprint; None if nobody has made
    it.

    Compares the digest of every file. `check=False` compares names and sizes, for plans, and copies
    nothing from a bucket. Raises BadOutput, and StoreError if the manifest is no regular file.
    """
    manifest = said(store, name, fingerprint)
    if manifest is None:
        return None
    made = Made(store, manifest)
    made.verify(digests=check)
    if check:
        made.fetch()
    return made


def said(store: Store, name: str, fingerprint: str) -> Manifest | None:
    """The manifest of the step, without a check of its folder; None if nobody has made it. Raises
    BadOutput, and StoreError if it is no regular file."""
    manifest = _word(store, f"{_step(name, fingerprint)}/manifest.json", Manifest)
    if manifest and (manifest.name, manifest.fingerprint) != (name, fingerprint):
        of = f"{manifest.name} {manifest.fingerprint}"
        place = store.place(f"{_step(name, fingerprint)}/manifest.json")
        raise store_digests.bad(str(place), f"it is of {of} and not of {name} {fingerprint}")
    return manifest


def newest(store: Store, name: str, fingerprint: str) -> tuple[Start | None, End | None]:
    """A step's newest generation. Without an end, it is running or its maker is dead; only its
    machine or a watcher can tell which. Raises BadOutput if a maker's file is unreadable."""
    found = history(store, name, fingerprint)
    return found[-1] if found else (None, None)


def history(store: Store, name: str, fingerprint: str) -> list[tuple[Start, End | None]]:
    """Every generation of a step with its end, in order."""
    found: list[tuple[Start, End | None]] = []
    while begun := _generation(store, name, fingerprint, len(found) + 1):
        found.append(begun)
    return found


def _generation(
    store: Store, name: str, fingerprint: str, generation: int
) -> tuple[Start, End | None] | None:
    """How a generation started and ended; None if it did not start. If a power cut truncated its
    files, it was lost."""
    nobody = Start(
        name=name, fingerprint=fingerprint, generation=generation, maker="0" * 16, by="", host=""
    )
    start = _word(store, f"leases/{nobody.lease}/start.json", Start, cut_off=nobody)
    if start is None:
        return None
    if start.lease != nobody.lease:
        raise BadOutput(
            f"leases/{nobody.lease} speaks of {start.lease}. Remove leases/{nobody.lease}."
        )
    end = _word(store, f"leases/{nobody.lease}/end.json", End, cut_off=CUT_OFF)
    return start, end or (CUT_OFF if start == nobody else None)


def make(
    store: Store,
    name: str,
    fingerprint: str,
    build: Callable[[Path], object],
    parts: dict[str, JsonValue],
    *,
    by: str = "",
    receipt: Callable[[], dict[str, str]] = dict,
    waited: Callable[[], float] = float,
    most_lost: float = math.inf,
    preemptible: bool = False,
    left: Callable[[Sequence[str]], int] = lambda _: 0,
    stale_after: float = STALE_AFTER,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Made:
    """The finished output: found, waited for, or made here by `build`, which writes files into the
    empty folder that it gets. Called afterwards: `receipt`; `waited`, seconds that do not count.

    The failure of another maker may be its machine's fault, so this process then tries itself. If
    our own `build` raises MakerLost, or a maker of `by` was taken for dead, the next generation
    starts, until `most_lost` of them in a row were lost without progress: `left` measures how much
    the makers with these folders left behind to continue from. Those that were preempted do not
    count: that raised MakerPreempted, and on `preemptible` machines those that were taken for dead.
    Raises MakingFailed only if our own `build` raised, was lost too often, or the disk failed;
    BadOutput if the output is damaged.
    `stale_after` is in seconds of `monotonic`; heartbeats are 4.5 times as frequent in real time.
    """
    watch, me, host = LeaseWatch(store, monotonic), secrets.token_hex(8), socket.gethostname()
    turn = partial(Start, name=name, fingerprint=fingerprint, maker=me, by=by, host=host)

    def built(mine: Start, folder: Path) -> Manifest:
        if mine.generation > most_lost:
            _refuse_too_many(store, mine, most_lost, left)
        make_folder(folder.parents[1])
        folder.mkdir(parents=True)
        began = monotonic()
        build(folder)
        seconds = monotonic() - began - waited()
        files = store_digests.accepted(folder)
        store_digests.sync(folder, 2)
        store.publish(mine.folder)
        rest = mine.model_dump(exclude={"process"}) | {
            "receipt": receipt(),
            "made_at": datetime.now(UTC),
        }
        return Manifest(**rest, files=files, parts=parts, seconds=seconds)

    try:
        while True:
            if made := find(store, name, fingerprint, check=False):
                if made.manifest.maker != me:
                    made.verify()
                return made
            start, end = newest(store, name, fingerprint)
            if start and not end:
                lost = partial(End, how="lost", preempted=preemptible)
                if process_owner.has_ended(start.process):
                    _end(store, start, lost(why="its process has ended"))
                elif watch.look(start.lease).still_for >= stale_after:
                    _end(store, start, lost(why=f"it stood still for {stale_after:g} s"))
                else:
                    sleep(LOOK_EVERY)
            elif end and end.manifest and _is_there(store, end.manifest):
                store.create(f"{_step(name, fingerprint)}/manifest.json", end.manifest.canonical())
            else:
                number = start.generation + 1 if start else 1
                mine = turn(generation=number, process=process_owner.me())
                _take_turn(store, mine, built, waited, stale_after * BEAT_EVERY / STALE_AFTER)
    except OSError as error:
        raise MakingFailed(
            f"{name} {fingerprint} cannot be made or waited for: {sentence(error)}. Look into the "
            f"room and the rights in {store.root}, then run again."
        ) from error


def _take_turn(
    store: Store,
    mine: Start,
    built: Callable[[Start, Path], Manifest],
    waited: Callable[[], float],
    beat_every: float,
) -> None:
    """Make this generation unless another maker has it, and end it. Raises MakingFailed."""
    lease, folder = AttemptLease(store, mine.lease, lasting=False), store.local(mine.folder)
    began = time.monotonic()
    if not lease.start(mine.model_dump(mode="json")):
        return
    with lease.beating(beat_every):
        try:
            made = End(how="made", manifest=built(mine, folder))
        except MakerLost as error:
            _clear(folder)
            taken, took = isinstance(error, MakerPreempted), time.monotonic() - began - waited()
            _end(store, mine, End(how="lost", why=sentence(error), preempted=taken, seconds=took))
            return
        except (Exception, KeyboardInterrupt) as error:
            _clear(folder)  # frees space for the end, if the disk is full
            with suppress(OSError, StoreError):  # if this fails, the others wait until it is stale
                _end(store, mine, End(how="failed", why=sentence(error)))
            if isinstance(error, KeyboardInterrupt):
                raise
            raise MakingFailed(f"{mine.folder} could not be made: {sentence(error)}") from error
        _end(store, mine, made)


def _clear(folder: Path) -> None:
    with suppress(OSError):
        remove_tree(folder)


def _refuse_too_many(
    store: Store, mine: Start, most: float, left: Callable[[Sequence[str]], int]
) -> None:
    """Raises MakingFailed if so many makers of the same execution were lost in a row without
    progress."""
    folders, best, in_vain, times, why = list[str](), 0, 0, 0, ""
    for start, end in history(store, mine.name, mine.fingerprint)[: mine.generation - 1]:
        if not end or start.by != mine.by or end.how != "lost":
            continue
        folders.append(start.folder)
        now = left(folders)
        in_vain = 0 if now > best else in_vain + (not end.preempted)
        best = max(now, best)
        if not end.preempted:
            times, why = times + 1, end.why
    if in_vain >= most:
        of_them = "" if times == in_vain else f", the last {in_vain} of them in vain"
        raise MakingFailed(f"it was lost {times} times{of_them}; the last time {why}")


def _end(store: Store, of: Start, end: End) -> None:
    """End a generation. Does nothing if it has already ended."""
    end = end.model_copy(update={"at": datetime.now(UTC)}) if end.how == "lost" else end
    store.create(f"leases/{of.lease}/end.json", end.canonical(), lasting=False)


def _is_there(store: Store, manifest: Manifest) -> bool:
    """Whether the folder that it names still exists."""
    where = store.at(manifest.folder)
    return where.is_dir() if isinstance(where, Path) else not manifest.files or any(where.walk())


def _step(name: str, fingerprint: str) -> str:
    return f"steps/{name}/{fingerprint[:16]}"


def _word(store: Store, name: str, kind: type[R], cut_off: R | None = None) -> R | None:
    """The record in this file; `cut_off` (if given) if a power cut removed its last byte."""
    try:
        data = store.peek(name, MOST_WORD + 1)
        if cut_off and data is not None and not data.endswith(b"\n") and len(data) <= MOST_WORD:
            return cut_off
        if data and len(data) > MOST_WORD:
            raise ValueError(f"larger than {MOST_WORD} bytes")
        return None if data is None else kind.model_validate_json(data)
    except ValueError as error:
        where = str(store.place(name))
        raise BadOutput(
            f"{where} is no {kind.__name__}: {error}. Remove {where.rpartition('/')[0]}."
        ) from error


def sentence(error: BaseException) -> str:
    """An error's message on one line; errors that are written for people keep their text."""
    meant = isinstance(error, StoreError | BadOutput | MakingFailed)
    words = str(error) if meant else f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:MOST_WHY]
