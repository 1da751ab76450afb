"""What the site remembers of executions that have ended, so that a build reads what is new.

Of an execution that has its result only replays are still to come, so what was read of one is kept
in a file of the site's folder, without the curves, which only its own pages show. A memory is
believed where the store's files have the names, sizes and times that they had when they were read,
and where the code that wrote it is the code that reads it; else the records are read again. It may
be removed.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from bot.site.base.files import edition, write
from runner.lib import base_record
from runner.schema import record
from runner.store.store import Store

NAME = ".remembered.jsonl"


class Facts(base_record.Record):
    """All that the records say of one execution, but what its issue says."""

    seen: str  # names, sizes and times of its records when they were read
    told: str  # SHA-256 over their bytes
    curved: bool  # whether a run has a curve
    events: tuple[str, ...]
    execution: record.Execution
    result: record.Result | None
    runs: tuple[record.Run, ...]  # in the plan's order; once remembered, without curves
    approval: record.Approval | None
    ends: dict[str, record.Ended]  # by attempt
    replays: tuple[record.Replayed, ...] = ()


class Memory:
    """Facts by execution, in memory and, of those that have ended, in a file."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read what the site in `folder` remembers; whatever is wrong with that is forgotten."""
        self._path = folder / NAME if folder else None
        self._facts: dict[str, Facts] = {}
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
                    facts = [Facts.model_validate_json(line) for line in lines]
                    self._facts = {one.execution.id: one for one in facts}
                    self._lines = dict(zip(self._facts, lines, strict=True))
            except (OSError, ValueError):
                self._facts, self._lines, self._changed = {}, {}, True

    def facts(self, store: Store, *, curves: bool = False) -> list[Facts]:
        """Of every execution in the store what is known of it; with `curves` only where nothing
        was remembered."""
        found: dict[str, Facts] = {}
        self.unread = {}
        for name, (seen, events) in _seen(store).items():
            facts = self._facts.get(name)
            if facts is None or facts.seen != seen or facts.result is None:
                try:
                    facts = read(store, name, events, seen)
                    facts = facts if curves else without_curves(facts)
                except record.BadRecord as error:
                    self.unread[name] = str(error).replace(str(store.root), "the store")
                    continue
                self._lines.pop(name, None)
                self.read += 1
                self._changed = True
            found[name] = facts
        self._changed |= found.keys() != self._facts.keys()
        self._facts = found
        return list(found.values())

    def keep(self) -> None:
        """Write the file, if it would be another one."""
        if self._path and self._changed:
            ended = {name: one for name, one in sorted(self._facts.items()) if one.result}
            self._lines = {
                name: self._lines.get(name) or one.model_dump_json().encode()
                for name, one in ended.items()
            }
            write(self._path, b"\n".join([edition().encode(), *self._lines.values(), b""]))
            self._changed = False


def without_curves(facts: Facts) -> Facts:
    """The same, as it is remembered."""
    runs = tuple(run.model_copy(update={"curve": ()}) for run in facts.runs)
    return facts.model_copy(update={"runs": runs})


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


def read(store: Store, name: str, events: Iterable[str], seen: str = "") -> Facts:
    """Everything on record of one execution. Raises StoreError, and BadRecord
    for one of another form."""
    folder, digest = f"executions/{name}", hashlib.sha256()

    def take(path: str, kind: type[record.R]) -> record.R | None:
        data = store.peek(f"records/{path}.json")  # and nothing stays in memory
        digest.update(f"{path} {-1 if data is None else len(data)}\n".encode() + (data or b""))
        return None if data is None else record.parse(store, path, kind, data)

    execution = take(f"{folder}/execution", record.Execution)
    if execution is None:  # it was there when the folder was listed
        execution = record.require(store, f"{folder}/execution", record.Execution)
    runs = [
        take(f"runs/{name}.{record.run_name(arm, seed)}", record.Run)
        for arm, seed in execution.plan.runs()
    ]
    approval = None
    if origin := execution.origin:
        command = record.command_of(origin.approval)
        path = f"approvals/{origin.repository}/{origin.pull}/{command}"
        approval = take(path, record.Approval)
    # `t` before `e`, each in the order of its number.
    ordered = sorted(events, key=lambda event: (event.startswith("e"), event))
    ends = {
        event.partition(".")[0]: end
        for event in ordered
        if event.endswith(".ended") and (end := take(f"{folder}/{event}", record.Ended))
    }
    result = take(f"{folder}/result", record.Result)
    numbers = sorted(int(number) for number in record.names(store, f"replays/{name}"))
    replays = [take(f"replays/{name}/{number}", record.Replayed) for number in numbers]
    return Facts(
        seen=seen,
        told=digest.hexdigest(),
        curved=any(run.curve for run in runs if run),
        events=tuple(events),
        execution=execution,
        result=result,
        runs=tuple(run for run in runs if run),
        approval=approval,
        ends=ends,
        replays=tuple(replay for replay in replays if replay),
    )
