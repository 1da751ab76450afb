"""A cache of ended executions, so that a build reads only new records.

After an execution has its result, only replays can be added. So its entry is cached in a file of
the site's folder, without the curves, which only its own pages show. The cache is used if the
store's files still have the same names, sizes and times, and the code has not changed; otherwise
the records are read again. The file may be deleted.
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
    """Entries by execution, in memory, and for ended ones in a file."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read the cache in `folder`; an unusable one is ignored."""
        self._path = folder / NAME if folder else None
        self._entries: dict[str, Entry] = {}
        self._lines: dict[str, bytes] = {}  # the file's line for each
        self._changed = False
        self.read = 0  # executions that were read from the store
        self.unread: dict[str, str] = {}  # unreadable executions, with the problem
        # What could not be drawn last time, with the reason, and the executions that were left out.
        self.suspects: tuple[Mapping[str, str], Collection[str]] = {}, ()
        self.told: dict[str, str] = {}  # what the log already says is left out
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
        """Every execution in the store, without its curves and without its issue."""
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
        """Write the file, if it has changed."""
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
    """The records below a folder, by `runner.schema.record`'s names, each with its version (size
    and time). Opens none: there are thousands of them, and few are new."""
    for file in store.walk(f"records/{folder}"):
        path = file.name.removeprefix("records/")
        if path.endswith(".json") and not path.rpartition("/")[2].startswith("."):  # a draft
            yield path.removesuffix(".json"), f"{path} {file.size} {file.at}"
