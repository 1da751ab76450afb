"""Garbage collection. `plan` decides, as a pure function; `look` reads and `free` deletes.

A store is divided into pieces that are kept or freed as a whole. These are kept:

- records, leases (they say what has started), pins, imported models, corpora, replies of language
  models, the compilation cache, and foreign files;
- of an execution that is not over, everything; of a finished one, the checkpoints that its records
  name. The rest of its attempts' folders is freed: full metrics, logs, other checkpoints;
- a step's manifest and the folder that it names. Another maker's folder is freed once its lease has
  ended as lost or failed, because its manifest would be refused; one without an end may still be
  finished. Scratch is freed once the step is made: until then, the next maker continues from its
  checkpoints;
- a text or an experiment's code, as long as a recorded plan names its digest;
- everything written within the last hour, and the work of a lease that was renewed within it.

A pin is a file `pins/<name>.json`, such as {"path": "work/x…", "reason": "for the paper"}; it keeps
the file or folder with this name.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from runner.store.backends import in_words, remove_tree
from runner.store.scratch_paths import SCRATCH
from runner.store.store import Entry, Store, StoreError, together

HOUR = 3600.0  # seconds; far more than clocks differ or a lease goes without renewal
JSON = re.compile(r"(^|/)[^./][^/]*\.json$")  # without drafts
RECORD = re.compile(r"records/(?!inbox/|handled/|said/)")  # these name no files
MOST = 64 << 20  # bytes of a record
ABOUT_OTHERS = "set_aside"  # the key under which a record names what it does not trust

HOW = {"lost": "was taken for dead", "failed": "failed"}
MAKERS = re.compile(r"steps/[^/]+/[^/]+/manifest\.json|leases/steps/.+/end\.json")
ATTEMPT = re.compile(r"(x[0-9a-f]{16})\.[te][0-9]+-[0-9a-f]+")
# Names by digest.
OF_PLANS = {"texts": re.compile(r"[0-9a-f]+-[0-9a-f]+"), "code": re.compile(r"[0-9a-f]+")}
KEPT = {
    "records": "records are never removed",
    "leases": "they say what has begun",
    "pins": "the store's own",
    "store.json": "the store's own",
    "models": "imported models, which plans name by digest",
    "corpora": "fetched corpora, which plans name by digest",
    "replies": "replies of language models, which were paid for",
    "cache": "compiled programs, which new runs share",
}
PIN = re.compile(r"pins/(?!\.).+")
DRAFT = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
Judged = tuple[str, Literal["keep", "free"], str]  # a piece, the decision, and why


class Pin(BaseModel):
    """A person's request to keep a file or folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str  # its name in the store
    reason: str


@dataclass(frozen=True)
class Piece:
    """A part of the store that is kept or freed as a whole."""

    name: str
    verdict: Literal["keep", "free"]
    why: str
    entries: tuple[Entry, ...] = field(repr=False)

    @property
    def size(self) -> int:
        """The sum of its files' bytes."""
        return sum(entry.size for entry in self.entries)


@dataclass(frozen=True)
class Facts:
    """The state of a store at one moment."""

    entries: tuple[Entry, ...]
    records: Mapping[str, Any]  # parsed, by name; those that may name files
    makers: Mapping[str, Any]  # steps' manifests and leases' ends, parsed; None if not JSON
    pins: Mapping[str, Pin]
    now: float  # seconds since 1970

    @cached_property
    def strings(self) -> frozenset[str]:
        """Every string in those records: names, digests, and other texts."""
        return frozenset(_strings(list(self.records.values())))

    @cached_property
    def events(self) -> Mapping[str, frozenset[str]]:
        """The names of each recorded execution's records: `execution`, `t1.claimed`, …"""
        found: dict[str, set[str]] = defaultdict(set)
        for name in self.records:
            if match := re.fullmatch(r"records/executions/([^/]+)/(.+)\.json", name):
                found[match[1]].add(match[2])
        return {execution: frozenset(events) for execution, events in found.items()}

    @cached_property
    def over(self) -> Mapping[str, str]:
        """Executions that have a result and whose attempts have all ended, with their states."""
        states = {}
        for execution, events in self.events.items():
            claimed = {event.split(".")[0] for event in events if event.endswith(".claimed")}
            result = self.records.get(f"records/executions/{execution}/result.json")
            if isinstance(result, dict) and all(f"{name}.ended" in events for name in claimed):
                states[execution] = str(result.get("state"))
        return states

    @cached_property
    def alive(self) -> frozenset[str]:
        """Lease folders, such as `x….t1-…`, that were written within the last hour and not
        released."""
        newest: dict[str, float] = defaultdict(float)
        released = set()
        for entry in self.entries:
            if entry.name.startswith("leases/"):
                folder, _, name = entry.name.removeprefix("leases/").rpartition("/")
                newest[folder] = max(newest[folder], entry.at)
                if name == "released.json":
                    released.add(folder)
        return frozenset(
            folder
            for folder, at in newest.items()
            if self.now - at < HOUR and folder not in released
        )


# ── The rule ─────────────────────────────────────────────────────────────────────────────────


def plan(facts: Facts, older_than: float = HOUR) -> list[Piece]:
    """Which pieces of the store are freed and which are kept, and why. Each file is in one piece.

    A piece with a file written within the last `older_than` seconds is kept.
    """
    pieces: dict[Judged, list[Entry]] = defaultdict(list)
    for entry in facts.entries:
        judged = _judge(facts, entry.name)
        if entry.folder and _names_a_part(facts, entry.name):
            judged = entry.name, "keep", "it cannot be listed, and something in it is named"
        pieces[judged].append(entry)
    found = []
    for (name, verdict, why), entries in pieces.items():
        youngest = facts.now - max(entry.at for entry in entries)
        if verdict == "free" and youngest < older_than:
            verdict, why = "keep", f"written {max(0.0, youngest) / 60:.0f} min ago; {why}"
        found.append(Piece(name, verdict, why, tuple(entries)))
    return sorted(found, key=lambda piece: (piece.name, piece.why))


def _judge(facts: Facts, name: str) -> Judged:
    """The piece of a file, the decision about it, and why."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return name, "keep", "no name that a lab gives"
    for pin, said in facts.pins.items():
        if name == said.path or name.startswith(f"{said.path}/"):
            return said.path, "keep", f"{pin}: {said.reason}"
    top = parts[0]
    if DRAFT.fullmatch(parts[-1]) and top in ("records", "leases", "texts", "code", "pins"):
        return name, "free", "a draft whose writer died"
    if top == "work" and len(parts) > 2:
        return _of_work(facts, parts)
    if top == "steps" and len(parts) > 3:
        return _of_a_step(facts, parts)
    if top in OF_PLANS and len(parts) > 2 and OF_PLANS[top].fullmatch(parts[1]):
        if facts.strings.issuperset(parts[1].split("-")):
            return f"{top}/{parts[1]}", "keep", "a recorded plan names it"
        return f"{top}/{parts[1]}", "free", "no recorded plan names it"
    return top, "keep", KEPT.get(top, "nothing that gc knows")


def _of_work(facts: Facts, parts: list[str]) -> Judged:
    folder = f"work/{parts[1]}"
    match = ATTEMPT.fullmatch(parts[1])
    execution = match[1] if match else ""
    if execution not in facts.events:
        return folder, "keep", "no record says what it is of"
    if execution not in facts.over:
        return folder, "keep", f"{execution} is not over"
    if parts[1] in facts.alive:
        return folder, "keep", "its lease was renewed within the hour"
    if named := _named(facts, parts):
        return named, "keep", "a record names it"
    return folder, "free", f"{execution} is {facts.over[execution]}; its records need no more of it"


def _of_a_step(facts: Facts, parts: list[str]) -> Judged:
    step, maker = "/".join(parts[:3]), parts[3]
    folder, manifest = f"{step}/{maker}", f"{step}/manifest.json"
    if len(parts) == 4:
        return folder, "keep", "a step's manifest" if folder == manifest else "nothing gc knows"
    made = facts.makers.get(manifest, {})
    if not isinstance(made, dict):
        return folder, "keep", "the step's manifest cannot be read"
    if maker == f"{made.get('generation')}-{made.get('maker')}":
        return folder, "keep", "the step's manifest names it"
    if named := _named(facts, parts):
        return named, "keep", "a record names it"
    lease = f"{step}/{maker.partition('-')[0]}"
    end = facts.makers.get(f"leases/{lease}/end.json")
    how = end.get("how") if isinstance(end, dict) else None
    if lease in facts.alive and how != "made":
        return folder, "keep", "its lease was renewed within the hour"
    if maker.endswith(SCRATCH):
        if made:
            return folder, "free", "the step is made, and needs no scratch"
        return folder, "keep", "the next maker continues from its checkpoints"
    if how in HOW:
        return folder, "free", f"its maker {HOW[how]}, and its manifest would be refused"
    return folder, "keep", "it may still be finished"


def _named(facts: Facts, parts: list[str]) -> str | None:
    """The name in a record that is this file or a folder around it; None if there is none. Records
    name checkpoints from `work/` on, everything else from the root."""
    for length in range(2, len(parts) + 1):
        name = "/".join(parts[:length])
        if name in facts.strings or name.removeprefix("work/") in facts.strings:
            return name
    return None


def _names_a_part(facts: Facts, folder: str) -> bool:
    """Whether a pin or a record names something inside a folder that is one entry."""
    named = {*facts.strings, *(pin.path for pin in facts.pins.values())}
    return any(one.startswith(f"{folder}/") for one in named)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != ABOUT_OTHERS:
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


# ── The hands ────────────────────────────────────────────────────────────────────────────────


def look(store: Store, now: float) -> Facts:
    """Read the whole store. Raises StoreError if a record or a pin is unreadable, because its needs
    are unknown, and for a pin that names nothing, because it may be misspelt."""
    entries = tuple(store.walk())
    # Records are read again at the end, so that names recorded during the walk are seen.
    jsons = [entry for entry in (*entries, *store.walk("records")) if JSON.search(entry.name)]
    records = {entry.name: entry for entry in jsons if RECORD.match(entry.name)}
    makers = [entry for entry in jsons if MAKERS.fullmatch(entry.name)]
    pins = [entry for entry in entries if PIN.fullmatch(entry.name)]
    return Facts(
        entries=entries,
        records=_parsed(store, records.values()),
        makers=_parsed(store, makers, strict=False),
        pins={
            name: _pin(store, name, said, entries) for name, said in _parsed(store, pins).items()
        },
        now=now,
    )


def free(store: Store, pieces: Iterable[Piece]) -> int:
    """Delete all files of these pieces, and the folders that are then empty. Returns their bytes.
    Raises StoreError at the first failure; others may be deleted by then."""
    gone = list(pieces)

    def remove(entry: Entry) -> None:
        if not entry.folder:
            store.remove(entry.name)
            return
        with in_words(f"{store.url(entry.name)} was not removed"):
            remove_tree(store.local(entry.name))

    together(remove, [entry for piece in gone for entry in piece.entries])
    for piece in gone:
        store.prune(piece.name)
    return sum(piece.size for piece in gone)


def _parsed(store: Store, entries: Iterable[Entry], strict: bool = True) -> dict[str, Any]:
    """The content of these files by name. Jobs write some of them; those that are not JSON are
    None."""

    def parse(entry: Entry) -> tuple[str, Any]:
        try:
            return entry.name, json.loads(store.peek(entry.name, MOST) or b"")
        except (ValueError, RecursionError, StoreError) as error:
            if not strict:
                return entry.name, None
            raise StoreError(
                f"{store.url(entry.name)} cannot be read ({error}), so what it needs is not known. "
                "Restore it or move it aside; nothing was freed."
            ) from error

    return dict(together(parse, entries))


def _pin(store: Store, name: str, said: Any, entries: Iterable[Entry]) -> Pin:
    try:
        pin = Pin.model_validate(said)
    except ValueError as error:
        raise StoreError(
            f'{store.url(name)} is no pin. One is {{"path": "work/x…", "reason": "for the '
            'paper"}. Mend it or move it aside; nothing was freed.'
        ) from error
    path = pin.path.strip("/")
    if not any(f"{entry.name}/".startswith(f"{path}/") for entry in entries):
        raise StoreError(
            f"{store.url(name)} pins {path}, and nothing in the store has this name. Mend it or "
            "move it aside; nothing was freed."
        )
    return pin.model_copy(update={"path": path})
