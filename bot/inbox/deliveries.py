"""The inbox: pending and handled deliveries per thread, and the facts in them.

    inbox/<repository>/<thread>/<delivery>.json     kept before GitHub gets its 2xx
    handled/<repository>/<thread>/<delivery>.json   the same, after a complete look at the thread
    pushes/<repository>/<thread>/<time>-<commit>    permanent: a head that moved and came back moved

A delivery's id only saves work: the signature does not cover it, so everything that must happen
once has a key of its own (`Message.key`). Of handled deliveries only the pushes are read again, so
a look costs the same on a thread with ten thousand comments.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from bot.inbox.payloads import Delivery
from bot.model.keys import Key
from bot.model.thread import Message, Push, Said, ThreadId
from runner.lib.base_record import Record
from runner.schema import record
from runner.store.backends import StoreFault
from runner.store.store import Store

NAME = r"[0-9A-Za-z-]{1,80}"  # of a delivery: its id, which becomes a file name


# Pending deliveries that were read, by path: in a flood there are many, and each look wants them.
_known: WeakKeyDictionary[Store, dict[str, "Unheard"]] = WeakKeyDictionary()


class Pushed(Record):
    """A recorded push."""

    push: Push


@dataclass(frozen=True)
class Unheard:
    """A pending delivery."""

    name: str
    said: Delivery | None  # None: unreadable, without content


def keep(store: Store, id: ThreadId, name: str, delivery: Delivery) -> bool:
    """Put a delivery in the inbox. False if it was there, or handled, before."""
    if store.peek(f"records/handled/{id}/{name}.json", 1) is not None:
        return False
    try:
        return record.write(store, f"inbox/{id}/{name}", delivery)
    except StoreFault as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        # The leader has just removed the thread's empty folder.
        return record.write(store, f"inbox/{id}/{name}", delivery)


def waiting(store: Store, repository: int) -> Iterator[tuple[ThreadId, str]]:
    """(thread, delivery) of everything in the inbox; the time depends on its size only."""
    for entry in store.walk(f"records/inbox/{repository}"):
        number, _, name = entry.name.removeprefix(f"records/inbox/{repository}/").partition("/")
        if number.isdigit() and name.endswith(".json"):
            yield ThreadId(repository, int(number)), name.removesuffix(".json")


def unhandled(store: Store, id: ThreadId) -> list[Unheard]:
    """The pending deliveries of a thread: messages in order, then others."""
    known = _known.setdefault(store, {})
    paths = {f"{id}/{name}": name for name in record.names(store, f"inbox/{id}")}
    for path, name in paths.items():
        if path not in known and store.peek(f"records/handled/{path}.json", 1) is None:
            known[path] = Unheard(name, _read(store, f"records/inbox/{path}.json"))
    return sorted((known[path] for path in paths if path in known), key=_order)


def handle(store: Store, id: ThreadId, unheard: Unheard) -> None:
    """Record that a delivery is handled."""
    if unheard.said and unheard.said.push:
        note_pushes(store, id, [unheard.said.push])
    path = f"records/inbox/{id}/{unheard.name}.json"
    _known.get(store, {}).pop(f"{id}/{unheard.name}", None)
    data = store.peek(path)
    store.create(f"records/handled/{id}/{unheard.name}.json", data or b"{}\n")
    store.remove(path)
    store.prune(f"records/inbox/{id}")


def tidy(store: Store, repository: int) -> None:
    """Remove handled deliveries that a crash left in the inbox."""
    for id, name in list(waiting(store, repository)):
        if store.peek(f"records/handled/{id}/{name}.json", 1) is not None:
            store.remove(f"records/inbox/{id}/{name}.json")
    store.prune(f"records/inbox/{repository}")


def known_messages(store: Store, id: ThreadId) -> set[tuple[str, int]]:
    """(via, id) of each comment and review that is already known, in any way. Reads all of the
    thread's deliveries: for sweeps."""
    return {
        (said.message.via, said.message.id)
        for folder in ("inbox", "handled")
        for name in record.names(store, f"{folder}/{id}")
        if (said := _read(store, f"records/{folder}/{id}/{name}.json")) and said.message
    }


def note_pushes(store: Store, id: ThreadId, found: Iterable[Push]) -> None:
    """Record known pushes of a pull request permanently."""
    for push in found:
        name = f"{push.at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{push.after[:16] or 'unknown'}"
        record.write(store, f"pushes/{id}/{name}", Pushed(push=push))


def pushes(store: Store, id: ThreadId, deliveries: Sequence[Unheard]) -> tuple[Push, ...]:
    """All known pushes to a pull request, oldest first."""
    known = [
        record.require(store, f"pushes/{id}/{name}", Pushed).push
        for name in record.names(store, f"pushes/{id}")
    ]
    new = [heard.said.push for heard in deliveries if heard.said and heard.said.push]
    return tuple(sorted(dict.fromkeys(known + new), key=lambda push: (push.at, push.after)))


def news(deliveries: Sequence[Unheard], restored: datetime | None) -> bool:
    """Whether a delivery is newer than the restoration of the thread's records."""
    times = [it.said.at if it.said else None for it in deliveries]
    return any(restored is None or at is None or at > restored for at in times)


def messages(
    deliveries: Sequence[Unheard],
    said: Mapping[Key, Said],
    restored: datetime | None = None,
    ours: tuple[str, str] = ("", ""),
) -> tuple[Message, ...]:
    """The messages that may contain commands. A pressed button counts only on a recorded check run,
    or for all checks of `ours`, the lab's App and the planned commit; messages from before a
    restoration do not count, because their outcome is unknown."""
    found: dict[tuple[str, int, str, int], Message] = {}
    for delivery in (heard.said for heard in deliveries):
        if delivery is None or delivery.message is None:
            continue
        message = delivery.message
        # The time of a press is unknown, only that of its check run; stopping is the safe side.
        stops = message.via == "button" and message.identifier == "cancel"
        if restored is not None and message.at <= restored and not stops:
            continue
        check = said.get(Key.parse(delivery.check))
        is_ours = check is not None and check.id == message.id
        is_ours = is_ours or (delivery.app, message.commit) == ours
        if message.via == "button" and not is_ours:
            continue
        # A message that arrived in two ways is one message, and its first text counts.
        by = message.author.id if message.via == "button" else 0
        found.setdefault((message.via, message.id, message.identifier, by), message)
    return tuple(found.values())


def _order(heard: Unheard) -> tuple[datetime, int, int, str]:
    message = heard.said.message if heard.said else None
    if message is None:
        return datetime.max.replace(tzinfo=UTC), 0, 0, heard.name
    swept = int(message.heard == "sweep")  # after its signed copy
    return message.at, message.id, swept, heard.name


def _read(store: Store, path: str) -> Delivery | None:
    data = store.peek(path)
    try:
        return Delivery.model_validate_json(data or b"")
    except (ValueError, RecursionError):
        return None
