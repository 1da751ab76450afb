"""Results files that pull requests bring, as records: what a head entered, and what was merged.

A `speedrun_results.json` is its author's word. What the lab read of it, and what an audit found
impossible, is written down for each head that was looked at; when the pull request is merged, a
second record says so, and its runs are rows of the tier "self-reported".

    entries/<repository>/<pull>/<n>.json       what the files of one head say
    entries/<repository>/<pull>/merged.json    which of them came to the default branch
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from runner.analysis import public_boards, speedrun_file
from runner.analysis.speedrun_file import BadFile, RunInfo
from runner.lib import bounds
from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.untrusted_files import printable
from runner.schema import record
from runner.store.store import Store

log = logging.getLogger("regatta.entries")
NAME = "speedrun_results.json"
MAX_BYTES = 1_000_000  # of one file
MAX_FILES = 20  # of one head
MAX_RUNS = 100  # of one file
MAX_WORDS = 500  # characters of a finding


class Found(Record):
    """Something about a run that cannot be, or that is only odd."""

    run: int  # from 0, as the file lists them
    kind: Literal["impossible", "odd"]
    rule: str  # a key of `speedrun_file.RULES`
    words: str


class EnteredFile(Record):
    """One results file: its runs, or why it cannot be read."""

    path: str
    sha256: Sha256 | None = None  # of its bytes; None: they were not read
    content: str = ""  # the file as the lab writes it, all keys kept
    problem: str = ""
    found: tuple[Found, ...] = ()

    @property
    def runs(self) -> list[RunInfo]:
        """What it holds; nothing where that is beyond what can be reckoned with, as an older lab
        took it."""
        try:
            return speedrun_file.read(self.content.encode()) if self.content else []
        except BadFile as error:
            log.warning("%s holds no runs any more: %s", printable(self.path), plain(str(error)))
            return []

    @property
    def impossible(self) -> list[Found]:
        """Findings that cannot be."""
        return [one for one in self.found if one.kind == "impossible"]


class EntryRecord(Record):
    """The results files that one head of a pull request brings; none where it takes back what an
    earlier one brought."""

    repository: int
    pull: int
    n: int
    commit: str
    at: Instant
    files: tuple[EnteredFile, ...]

    @property
    def stands(self) -> bool:
        """Whether each file can be read and nothing in it is impossible."""
        return not any(file.problem or file.impossible for file in self.files)


class Merged(Record):
    """The files of the entry `n` came to the default branch."""

    at: Instant
    n: int


def examined(path: str, content: bytes, standing: Mapping[str, str]) -> EnteredFile:
    """A results file as data, with what the audit finds. `standing`: whose W&B runs are on the
    board already. Never raises for any bytes."""
    digest = hashlib.sha256(content).hexdigest()

    def unread(why: str) -> EnteredFile:
        return EnteredFile(path=path, sha256=digest, problem=plain(why))

    try:
        runs = speedrun_file.read(content)
        if len(runs) > MAX_RUNS:
            return unread(f"it has {len(runs):,} runs; {MAX_RUNS} is the most")
        if beyond := next(filter(None, map(_beyond, runs)), None):
            return unread(f"its {beyond}")
        by_name = {str(n): run for n, run in enumerate(runs)}
        found = tuple(
            Found(run=int(one.entry), kind=one.kind, rule=one.rule, words=plain(one.words))
            for one in speedrun_file.audit(by_name, standing)
        )
        written = speedrun_file.write(runs)
        if speedrun_file.read(written) != runs:
            return unread("it has keys or numbers that do not survive writing")
    except BadFile as error:
        return unread(str(error))
    except (ValueError, OverflowError, RecursionError, TypeError) as error:
        return unread(f"its values cannot be counted with ({type(error).__name__})")
    return EnteredFile(path=path, sha256=digest, content=written.decode(), found=found)


def _beyond(run: RunInfo) -> str | None:
    """Which of its figures nobody can reckon with; None where all can be. Records of an older lab
    hold such ones, and are read with them."""
    told = run.model_dump(by_alias=True)
    author = told.pop("author")
    for key, value in (*told.items(), *(("author", value) for value in author.values())):
        if isinstance(value, int | float) and abs(value) > bounds.MOST_FIGURE:
            return f"{key} is beyond {bounds.MOST_FIGURE:g}"
        if isinstance(value, str) and len(value) > bounds.MOST_WORDS:
            return f"{key} is longer than {bounds.MOST_WORDS} characters"
    return None


def once(files: Iterable[EnteredFile]) -> tuple[EnteredFile, ...]:
    """The files of one head, with a finding where two of them enter the same W&B run."""
    every = list(files)
    places: dict[str, list[tuple[int, int]]] = {}
    for n, file in enumerate(every):
        for index, run in enumerate(file.runs):
            if name := speedrun_file.wandb_run(run.wandb_run_link):
                places.setdefault(name, []).append((n, index))
    for where in places.values():
        for n, index in where:
            others = sorted({every[m].path for m, _ in where if m != n})
            if others:
                words = plain(f"it has the same W&B run as {', '.join(others)}")
                one = Found(run=index, kind="impossible", rule="twice", words=words)
                every[n] = every[n].model_copy(update={"found": (*every[n].found, one)})
    return tuple(every)


def plain(words: str) -> str:
    """Words that every record and page can hold."""
    return words.encode("utf-8", "replace").decode()[:MAX_WORDS]


# ── What is on the board ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Entered:
    """A run that was merged, as a row."""

    repository: int
    pull: int
    commit: str
    at: Instant  # when the lab saw that it was merged
    path: str
    index: int  # in its file
    run: RunInfo
    found: tuple[Found, ...]

    @property
    def name(self) -> str:
        """Unique on the board."""
        return f"{self.path}[{self.index}] of #{self.pull}"


def merged(store: Store) -> list[Entered]:
    """The runs that have come to the default branch, oldest first. Of a path that several pull
    requests brought, the newest counts; of a file that can no longer be read, none."""
    came = [
        (done, record.require(store, f"{folder}/{done.n}", EntryRecord))
        for folder in _folders(store)
        if (done := record.read(store, f"{folder}/merged", Merged))
    ]
    files = {
        (entry.repository, file.path): (done, entry, file)
        for done, entry in sorted(came, key=lambda one: (one[0].at, one[1].pull))
        for file in entry.files
    }
    return [
        Entered(
            entry.repository,
            entry.pull,
            entry.commit,
            done.at,
            file.path,
            index,
            run,
            tuple(one for one in file.found if one.run == index),
        )
        for done, entry, file in files.values()
        for index, run in enumerate(file.runs)
    ]


@dataclass(frozen=True)
class Checked:
    """The newest head of a pull request that brought results, and whether it was merged."""

    entry: EntryRecord
    merged: bool


def checked(store: Store) -> list[Checked]:
    """What every pull request that brought results has now, the newest check first. One that took
    them back again has none."""
    found = []
    for folder in _folders(store):
        done = record.read(store, f"{folder}/merged", Merged)
        heads = record.numbered(store, folder, EntryRecord)
        entry = next((x for x in heads if done and x.n == done.n), heads[-1] if heads else None)
        if entry and entry.files:
            found.append(Checked(entry, done is not None))
    return sorted(found, key=lambda one: (one.entry.at, one.entry.pull), reverse=True)


def _folders(store: Store) -> Iterator[str]:
    """Where the entries of each pull request lie."""
    for repository in record.names(store, "entries"):
        for pull in record.names(store, f"entries/{repository}"):
            yield f"entries/{repository}/{pull}"


def standing(rows: Iterable[Entered], but: Iterable[str] = ()) -> dict[str, str]:
    """Whose W&B runs are on the board, the public one's included; those of files at the paths
    `but` are left out, as they are about to be replaced."""
    leave = set(but)
    entered = [
        *((row["wandb_link"], str(row["results_filepath"])) for row in public_boards.rows()),
        *((row.run.wandb_run_link, row.name) for row in rows if row.path not in leave),
    ]
    return {run: whose for link, whose in entered if (run := speedrun_file.wandb_run(link))}
