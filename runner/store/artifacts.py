"""Shared steps: one makes, the others wait, and whoever reads what was made checks it.

    steps/<name>/<first 16 of the fingerprint>/manifest.json   which folder counts, every digest
    steps/<name>/<first 16>/<generation>-<maker>/              what one maker wrote
    leases/steps/<name>/<first 16>/<generation>/               start.json, heartbeats, end.json

A generation starts once and ends once. Its maker ends it as made, as failed, or as lost where its
process was taken away; a watcher ends it as lost too who saw it stand still for 45 s, or on whose
machine its process has ended (`runner.lib.process_owner`). All create the same `end.json`, so one
comes through, and the next generation starts only after it. A maker that comes too late is refused,
wherever it slept: looking at the lease first could not promise this, since one can sleep between
the look and the deed. `manifest.json` is copied from the end that says made, by its maker or, if
that one died in between, by the next who looks.

So there is one manifest, it never changes, what it names was whole and on disk before it was
there, and all who ask get the same bytes. Not promised: that only one works at a time. A maker
that was taken for dead goes on, in a folder of its own, until it is refused.

On disk means: each file, its folder, and the names of that folder and of those around it are synced
before the end that says made, and the manifest and its name before `make` returns; so what it has
returned survives a power cut. A lease need not and is not synced: it says who is alive, and nobody
who wrote it is, then. What a power cut leaves of one is nothing, and its generation begins anew in
another folder; or cut off, and its generation counts as lost; or whole, and true, as an end that
says made names what was synced before it.

Of a store in a bucket, the folder that a maker writes into lies on its machine; it is uploaded
before the generation is ended as made. Who reads it has a copy, once a machine.
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
from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.bounds import Seconds
from runner.store import digests as store_digests
from runner.store.backends import make_folder, remove_tree
from runner.store.digests import BadOutput as BadOutput
from runner.store.leases import BEAT_EVERY, STALE_AFTER, AttemptLease, LeaseWatch
from runner.store.store import Store, StoreError

LOOK_EVERY = 0.5  # seconds between two looks of one who waits
MOST_WHY = 500  # characters
MOST_WORD = 4 * store_digests.MOST_LISTED  # bytes of a manifest, with what it was made of
R = TypeVar("R", bound=Record)


class MakingFailed(Exception):
    """The step could not be made here; the message is the whole sentence."""


class MakerLost(MakingFailed):
    """What made the step was taken away, by no fault of the step's: the next one may go on."""


class Turn(Record):
    """Whose turn it is to make a step."""

    name: str
    fingerprint: Sha256
    generation: int = Field(ge=1)
    maker: str = Field(pattern="^[0-9a-f]{16}$")  # a nonce, so that no two share a folder
    by: str  # the execution, as the caller names it
    host: str

    @property
    def lease(self) -> str:
        """Where below `leases/` it gives signs of life."""
        return f"{_step(self.name, self.fingerprint)}/{self.generation}"

    @property
    def folder(self) -> str:
        """Where in the store it writes."""
        return f"{self.lease}-{self.maker}"


class Start(Turn):
    """Somebody has begun to make a step."""

    process: str = ""  # its maker's, as `runner.lib.process_owner` names it; an older lab did not


class Manifest(Turn):
    """What a maker says of what it made."""

    files: dict[str, store_digests.FileDigest]  # by path relative to the folder, with `/`
    parts: dict[str, JsonValue]  # what the fingerprint was made of
    receipt: dict[str, str]
    made_at: Instant
    seconds: Seconds  # that the build took

    @property
    def output_sha256(self) -> str:
        """SHA-256 over the sorted relative paths, sizes and digests of the files."""
        return store_digests.sha256(self.files)


class End(Record):
    """How a generation ended. One that was made has its manifest here."""

    how: Literal["made", "failed", "lost"]
    why: str = ""
    manifest: Manifest | None = None


CUT_OFF = End(how="lost", why="the power was cut while it was made")


@dataclass(frozen=True)
class Made:
    """A finished step: its manifest, and its output's folder. Of a store in a bucket that is a copy
    on this machine, once somebody here has made it or has called `fetch`."""

    store: Store = field(compare=False, repr=False)
    manifest: Manifest

    @property
    def folder(self) -> Path:
        """Where its output lies on this machine."""
        return self.store.local(self.manifest.folder)

    def verify(self, *, digests: bool = True) -> None:
        """Raises BadOutput unless exactly the manifest's files are there, each with its digest.
        Without `digests`, and in a bucket, no file is read, and only sizes are compared."""
        where = self.store.at(self.manifest.folder)
        if isinstance(where, Path):
            store_digests.verify(where, self.manifest.files, digests=digests)
        else:
            found = {x.name.removeprefix(f"{where.key}/"): x.size for x in where.walk()}
            store_digests.compare(where.as_posix(), found, self.manifest.files)

    def fetch(self) -> None:
        """Have the output on this machine. A copy of what is in a bucket is read, each digest is
        compared, and a damaged one is made once more. Raises BadOutput and StoreError."""
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
        else:  # which is nothing at all in a bucket
            self.folder.mkdir(parents=True, exist_ok=True)
        store_digests.verify(self.folder, self.manifest.files)
        store_digests.settle(self.folder)  # as on the disk of who made it


def find(store: Store, name: str, fingerprint: str, *, check: bool = True) -> Made | None:
    """The finished step `name` with this full fingerprint, or None: nobody has made it.

    Every file is read and its digest compared; `check=False` compares names and sizes, for plans,
    and copies nothing out of a bucket. Raises BadOutput, and StoreError for a manifest that is no
    regular file.
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
    """The manifest of the step, whatever lies in the folder that it names; None if nobody has made
    it. Raises BadOutput, and StoreError for what is no regular file."""
    manifest = _word(store, f"{_step(name, fingerprint)}/manifest.json", Manifest)
    if manifest and (manifest.name, manifest.fingerprint) != (name, fingerprint):
        of = f"{manifest.name} {manifest.fingerprint}"
        place = store.place(f"{_step(name, fingerprint)}/manifest.json")
        raise store_digests.bad(str(place), f"it is of {of} and not of {name} {fingerprint}")
    return manifest


def newest(store: Store, name: str, fingerprint: str) -> tuple[Start | None, End | None]:
    """A step's newest generation. Without an end it is being made, or its maker is dead, which only
    its machine or a watcher can tell. Raises BadOutput where a maker's word is unreadable."""
    found = history(store, name, fingerprint)
    return found[-1] if found else (None, None)


def history(store: Store, name: str, fingerprint: str) -> list[tuple[Start, End | None]]:
    """Every generation of a step with its end, the first one first."""
    found: list[tuple[Start, End | None]] = []
    while begun := _generation(store, name, fingerprint, len(found) + 1):
        found.append(begun)
    return found


def _generation(
    store: Store, name: str, fingerprint: str, generation: int
) -> tuple[Start, End | None] | None:
    """How a generation began and ended; None if it did not begin. One whose words a power cut has
    cut off was lost, in whatever way it was to end."""
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
    most_lost: float = math.inf,
    left: Callable[[Sequence[str]], int] = lambda _: 0,
    stale_after: float = STALE_AFTER,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Made:
    """The finished step: found, waited for, or made here by `build`, which writes files into the
    empty folder that it is given. `receipt` is asked when it has.

    Another maker's failure may have been its machine's, so it is not ours: we take our turn. Where
    our own `build` raises MakerLost, or a maker of `by` was taken for dead, the next generation
    begins, until `most_lost` of them in a row were lost and got no further: `left` says how much
    makers with these folders left to go on from.
    Raises MakingFailed only where our own `build` raised, lost too often or the disk failed us;
    BadOutput where what was made is damaged. `stale_after`: seconds of `monotonic`; heartbeats are
    4.5 times as frequent, in real time.
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
        seconds = monotonic() - began
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
                if process_owner.has_ended(start.process):
                    _end(store, start, End(how="lost", why="its process has ended"))
                elif watch.look(start.lease).still_for >= stale_after:
                    _end(store, start, End(how="lost", why=f"it stood still for {stale_after:g} s"))
                else:
                    sleep(LOOK_EVERY)
            elif end and end.manifest and _is_there(store, end.manifest):
                manifest = f"{_step(name, fingerprint)}/manifest.json"
                store.create(manifest, end.manifest.canonical())
            else:
                number = start.generation + 1 if start else 1
                mine = turn(generation=number, process=process_owner.me())
                _take_turn(store, mine, built, stale_after * BEAT_EVERY / STALE_AFTER)
    except OSError as error:
        raise MakingFailed(
            f"{name} {fingerprint} cannot be made or waited for: {sentence(error)}. Look into the "
            f"room and the rights in {store.root}, then run again."
        ) from error


def _take_turn(
    store: Store,
    mine: Start,
    built: Callable[[Start, Path], Manifest],
    beat_every: float,
) -> None:
    """Make this generation if it is still to be had, and end it. Raises MakingFailed."""
    lease, folder = AttemptLease(store, mine.lease, lasting=False), store.local(mine.folder)
    if not lease.start(mine.model_dump(mode="json")):
        return
    with lease.beating(beat_every):
        try:
            made = End(how="made", manifest=built(mine, folder))
        except MakerLost as error:
            _clear(folder)
            _end(store, mine, End(how="lost", why=sentence(error)))
            return
        except (Exception, KeyboardInterrupt) as error:
            _clear(folder)  # room for the word, where the disk is full
            with suppress(OSError, StoreError):  # without it, the others wait until it is stale
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
    """Raises MakingFailed where so many makers of the same execution were lost in a row without
    having got further."""
    folders, best, in_vain, times, why = list[str](), 0, 0, 0, ""
    for start, end in history(store, mine.name, mine.fingerprint)[: mine.generation - 1]:
        if not end or start.by != mine.by or end.how != "lost":
            continue
        folders.append(start.folder)
        now = left(folders)
        in_vain, best = 0 if now > best else in_vain + 1, max(now, best)
        times, why = times + 1, end.why
    if in_vain >= most:
        of_them = "" if times == in_vain else f", the last {in_vain} of them in vain"
        raise MakingFailed(f"it was lost {times} times{of_them}; the last time {why}")


def _end(store: Store, of: Start, end: End) -> None:
    """End a generation. If it has ended before, this comes too late and changes nothing."""
    store.create(f"leases/{of.lease}/end.json", end.canonical(), lasting=False)


def _is_there(store: Store, manifest: Manifest) -> bool:
    """Whether the folder that it names was not removed."""
    where = store.at(manifest.folder)
    if isinstance(where, Path):
        return where.is_dir()
    return not manifest.files or any(where.walk())


def _step(name: str, fingerprint: str) -> str:
    return f"steps/{name}/{fingerprint[:16]}"


def _word(store: Store, name: str, kind: type[R], cut_off: R | None = None) -> R | None:
    """What is said there; `cut_off` where that is given and a power cut has taken its last byte."""
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
    """What an error says, on one line: as it is where its words are meant for people."""
    meant = isinstance(error, StoreError | BadOutput | MakingFailed)
    words = str(error) if meant else f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:MOST_WHY]
