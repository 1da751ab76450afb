"""Records of the results files in pull requests: what a head entered, and what was merged.

A `speedrun_results.json` is a claim of its author. For each head, the lab records what it read of
the file and what an audit found impossible. When the pull request is merged, a second record says
so, and its runs become rows of the tier "self-reported".

    entries/<repository>/<pull>/<n>.json       what the files of one head say
    entries/<repository>/<pull>/merged.json    which of them came to the default branch
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from runner.analysis import speedrun_file
from runner.analysis.speedrun_file import BadFile, RunInfo
from runner.lib import bounds
from runner.lib.base_record import Instant, Record, Sha256
from runner.lib.untrusted_files import printable
from runner.schema import record
from runner.store.store import Store

log = logging.getLogger("regatta.entries")
NAME = "speedrun_results.json"
MAX_BYTES = 1_000_000  # per file
MAX_FILES = 20  # per head
MAX_RUNS = 100  # per file
MAX_WORDS = 500  # characters of a finding


class Found(Record):
    """Something impossible or odd about a run."""

    run: int  # its position in the file, from 0
    kind: Literal["impossible", "odd"]
    rule: str  # a key of `speedrun_file.RULES`
    words: str


class EnteredFile(Record):
    """One results file: its runs, or why it is unreadable."""

    path: str
    sha256: Sha256 | None = None  # of its bytes; None: they were not read
    content: str = ""  # the file as the lab writes it, with all keys
    problem: str = ""
    found: tuple[Found, ...] = ()

    @property
    def runs(self) -> list[RunInfo]:
        """Its runs; empty if old records contain figures that overflow."""
        try:
            return speedrun_file.read(self.content.encode()) if self.content else []
        except BadFile as error:
            log.warning("%s holds no runs any more: %s", printable(self.path), plain(str(error)))
            return []

    @property
    def impossible(self) -> list[Found]:
        """Findings of the kind impossible."""
        return [one for one in self.found if one.kind == "impossible"]


class EntryRecord(Record):
    """The results files of one head of a pull request; empty if it removes those of an earlier
    one."""

    repository: int
    pull: int
    n: int
    commit: str
    at: Instant
    files: tuple[EnteredFile, ...]

    @property
    def stands(self) -> bool:
        """Whether each file is readable and contains nothing impossible."""
        return not any(file.problem or file.impossible for file in self.files)


class Merged(Record):
    """The files of the entry `n` came to the default branch."""

    at: Instant
    n: int


def examined(path: str, content: bytes, standing: Mapping[str, str]) -> EnteredFile:
    """A results file as data, with the audit's findings. `standing`: the owners of W&B runs that
    are already on the leaderboard. Never raises, for any bytes."""
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
    """The figure that overflows; None if there is none. Old records may contain such figures."""
    told = run.model_dump(by_alias=True)
    author = told.pop("author")
    for key, value in (*told.items(), *(("author", value) for value in author.values())):
        if isinstance(value, int | float) and abs(value) > bounds.MOST_FIGURE:
            return f"{key} is beyond {bounds.MOST_FIGURE:g}"
        if isinstance(value, str) and len(value) > bounds.MOST_WORDS:
            return f"{key} is longer than {bounds.MOST_WORDS} characters"
    return None


def once(files: Iterable[EnteredFile]) -> tuple[EnteredFile, ...]:
    """The files of one head, with a finding if two of them enter the same W&B run."""
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
    """Text that every record and page can contain."""
    return words.encode("utf-8", "replace").decode()[:MAX_WORDS]


# ── What is on the board ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Entered:
    """A merged run, as a row."""

    repository: int
    pull: int
    commit: str
    at: Instant  # when the lab saw the merge
    path: str
    index: int  # in its file
    run: RunInfo
    found: tuple[Found, ...]

    @property
    def name(self) -> str:
        """Unique on the leaderboard."""
        return f"{self.path}[{self.index}] of #{self.pull}"


def merged(store: Store) -> list[Entered]:
    """The runs on the default branch, oldest first. If several pull requests brought one path, the
    newest counts; unreadable files have no runs."""
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
    """The newest head of a pull request with results, and whether it was merged."""

    entry: EntryRecord
    merged: bool


def checked(store: Store) -> list[Checked]:
    """The current state of every pull request that brought results, the newest check first. One
    that removed them again is left out."""
    found = []
    for folder in _folders(store):
        done = record.read(store, f"{folder}/merged", Merged)
        heads = record.numbered(store, folder, EntryRecord)
        entry = next((x for x in heads if done and x.n == done.n), heads[-1] if heads else None)
        if entry and entry.files:
            found.append(Checked(entry, done is not None))
    return sorted(found, key=lambda one: (one.entry.at, one.entry.pull), reverse=True)


def _folders(store: Store) -> Iterator[str]:
    """The folders of all pull requests' entries."""
    for repository in record.names(store, "entries"):
        for pull in record.names(store, f"entries/{repository}"):
            yield f"entries/{repository}/{pull}"


def standing(rows: Iterable[Entered], but: Iterable[str] = ()) -> dict[str, str]:
    """The owners of W&B runs on the leaderboard, including the public one; without files at the
    paths `but`, which are about to be replaced."""
    leave = set(but)
    text = files("runner.analysis").joinpath("public/marin_runs.json").read_text("utf-8")
    public: dict[str, str] = json.loads(text)["runs"]
    own = ((row.run.wandb_run_link, row.name) for row in rows if row.path not in leave)
    return public | {run: whose for link, whose in own if (run := speedrun_file.wandb_run(link))}
