"""What the site remembers of executions that have ended, so that a build reads what is new.

Of an execution that has its result only replays are still to come, so what was read of one is kept
in a file of the site's folder, without the curves, which only its own pages show. A memory is
believed where the store's files have the names, sizes and times that they had when they were read,
and where the code that wrote it is the code that reads it; else the records are read again. It may
be removed.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from bot.site.base.files import edition, write
from bot.site.facts.entries import Entry, read
from runner.schema import record
from runner.store.store import Store

NAME = ".remembered.jsonl"


class Memory:
    """Entries by execution, in memory and, of those that have ended, in a file."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read what the site in `folder` remembers; whatever is wrong with that is forgotten."""
        self._path = folder / NAME if folder else None
        self._entries: dict[str, Entry] = {}
        self._lines: dict[str, bytes] = {}  # what the file says of each
        self._changed = False
        self.read = 0  # executions that were read from the store
        self.unread: dict[str, str] = {}  # executions that cannot be, with what is wrong
        # What could not be drawn last time, with why, and the executions that it was drawn without.
        self.suspects: tuple[Mapping[str, str], Collection[str]] = {}, ()
        self.told: dict[str, str] = {}  # what the log has been told is left out
        if self._path:
            try:
                first, *lines = self._path.read_bytes().splitlines()
                if first.decode() == edition():
                    found = [Entry.model_validate_json(line) for line in lines]
                    self._entries = {one.execution.id: one for one in found}
                    self._lines = dict(zip(self._entries, lines, strict=True))
            except (OSError, ValueError):
                self._entries, self._lines, self._changed = {}, {}, True

    def entries(self, store: Store) -> list[Entry]:
        """Every execution in the store without its curves, and without what its issue says."""
        found: dict[str, Entry] = {}
        self.unread = {}
        for name, (seen, events) in _seen(store).items():
            entry = self._entries.get(name)
            if entry is None or entry.seen != seen or entry.result is None:
                try:
                    entry = read(store, name, events, seen).without_curves()
                except record.BadRecord as error:
                    self.unread[name] = str(error).replace(str(store.root), "the store")
                    continue
                self._lines.pop(name, None)
                self.read += 1
                self._changed = True
            found[name] = entry
        self._changed |= found.keys() != self._entries.keys()
        self._entries = found
        return list(found.values())

    def keep(self) -> None:
        """Write the file, if it would be another one."""
        if self._path and self._changed:
            ended = {name: one for name, one in sorted(self._entries.items()) if one.result}
            self._lines = {
                name: self._lines.get(name) or one.model_dump_json().encode()
                for name, one in ended.items()
            }
            write(self._path, b"\n".join([edition().encode(), *self._lines.values(), b""]))
            self._changed = False


def _seen(store: Store) -> Mapping[str, tuple[str, list[str]]]:
    """{execution: (a digest of its records' names, sizes and times, its events)}."""
    events: dict[str, list[str]] = defaultdict(list)
    lines: dict[str, list[str]] = defaultdict(list)
    for kind, after in (("executions", "/"), ("runs", "."), ("replays", "/")):
        for path, seen in listed(store, kind):
            name, _, rest = path.removeprefix(f"{kind}/").partition(after)
            if kind == "executions":
                events[name].append(rest)
            lines[name].append(seen)
    return {
        name: (hashlib.sha256("\n".join(lines[name]).encode()).hexdigest(), sorted(events[name]))
        for name in sorted(events)
        if "execution" in events[name]
    }


def listed(store: Store, folder: str) -> Iterator[tuple[str, str]]:
    """The records below a folder, as `runner.schema.record` names them, each with what tells it
    from another of that name. None is opened: there are thousands of them, and few are new."""
    for file in store.walk(f"records/{folder}"):
        path = file.name.removeprefix("records/")
        if path.endswith(".json") and not path.rpartition("/")[2].startswith("."):  # a draft
            yield path.removesuffix(".json"), f"{path} {file.size} {file.at}"
