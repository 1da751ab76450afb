"""Create-once, leases and who leads."""

import errno
import io
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.store import store as store_module
from runner.store.leases import (
    RENEW_EVERY,
    STALE_AFTER,
    AttemptLease,
    Leadership,
    LeaseState,
    LeaseWatch,
)
from runner.store.store import Store, StoreError


class Clock:
    """A monotonic clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def race(tries: list[Callable[[], bool]]) -> list[int]:
    """Let all try at the same moment; who succeeded."""
    begin, won = threading.Barrier(len(tries)), []

    def go(number: int) -> None:
        begin.wait()
        if tries[number]():
            won.append(number)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(len(tries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


# ── Create-once ──────────────────────────────────────────────────────────────────────────────


def test_the_end_of_a_growing_file_is_its_end_at_the_call(store: Store) -> None:
    """A job's log may be written faster than it is read."""
    store.create("work/x/log.txt", b"0123456789")
    file, into = Path(store.root, "work/x/log.txt"), io.BytesIO()

    class Grows(io.BytesIO):
        def write(self, data: Any) -> int:
            if len(into.getvalue()) < 100:
                with file.open("ab") as log:
                    log.write(b"more" * 10)
            return into.write(data)

    assert store._lab.get("work/x/log.txt", Grows(), start=-4)
    assert into.getvalue() == b"6789"


def test_one_of_many_threads_creates_a_name_and_its_bytes_stay(store: Store) -> None:
    for name in (f"records/r{n}.json" for n in range(20)):
        won = race(
            [
                lambda writer=writer, name=name: store.create(name, f"{writer}\n".encode() * 1000)
                for writer in range(8)
            ]
        )
        assert len(won) == 1
        assert store.require(name) == f"{won[0]}\n".encode() * 1000


def _create_all(root: str, writer: int, begin: object, won: object) -> None:
    store = Store(Path(root))
    begin.wait()  # type: ignore[attr-defined]
    mine = [n for n in range(50) if store.create(f"records/r{n}.json", str(writer).encode())]
    won.put((writer, mine))  # type: ignore[attr-defined]


def test_one_of_many_processes_creates_a_name(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    begin, won = context.Barrier(4), context.Queue()
    processes = [
        context.Process(target=_create_all, args=(str(store.root), writer, begin, won))
        for writer in range(4)
    ]
    for process in processes:
        process.start()
    found = dict(won.get(timeout=30) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(n for mine in found.values() for n in mine) == list(range(50))
    for writer, mine in found.items():
        assert all(store.require(f"records/r{n}.json") == str(writer).encode() for n in mine)


def test_no_draft_is_left_and_none_is_ever_listed(store: Store) -> None:
    store.create("records/a.json", b"1")
    store.create("records/a.json", b"2")
    (store.local("records") / ".b.json.123.tmp").write_bytes(b"half")
    assert store.list("records") == ["a.json"]
    assert sorted(x.name for x in store.local("records").iterdir()) == [".b.json.123.tmp", "a.json"]


def test_a_link_whose_reply_was_lost_counts_as_done(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def lossy(source: Path, target: Path) -> None:
        link(source, target)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", lossy)
    assert store.create("records/a.json", b"ours") is True


def test_a_link_that_failed_is_no_success(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", broken)
    with pytest.raises(OSError, match="Input/output"):
        store.create("records/a.json", b"ours")
    assert store.list("records") == []


def test_a_file_system_without_links_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match="without hard links"):
        Store(tmp_path / "store")


def test_a_store_where_a_file_lies_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(StoreError, match="--store"):
        Store(tmp_path / "store")


def test_a_bucket_is_no_folder_and_a_command_that_needs_one_says_so() -> None:
    with pytest.raises(StoreError, match=r"gs://bucket/lab is in a bucket.*--store"):
        Store(Path("gs://bucket/lab"))  # as a command line's path option has it


# ── A disk that fails ────────────────────────────────────────────────────────────────────────


def _failing(number: int, *, after: int = 0) -> Callable[..., None]:
    """A call of the operating system that fails with this error, from the nth on."""
    calls = itertools.count()

    def fail(*_: object) -> None:
        if next(calls) >= after:
            raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_on_a_full_disk_nothing_is_written_and_the_sentence_says_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(os, call, _failing(errno.ENOSPC))
    with pytest.raises(StoreError, match=r"records/a.json was not written: No space left.*gc"):
        store.create("records/a.json", b"ours")
    monkeypatch.undo()
    assert store.read("records/a.json") is None
    assert list(store.walk("records")) == []
    assert store.create("records/a.json", b"ours")


@contextmanager
def _no_file_over(size: int) -> Iterator[None]:
    """The kernel ends each write at this size, as a disk does that is full in the middle."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_disk_that_is_full_in_the_middle_of_a_file_keeps_nothing_of_it(store: Store) -> None:
    with (
        _no_file_over(4096),
        pytest.raises(StoreError, match=r"steps/large was not written: File too large"),
    ):
        store.create("steps/large", b"x" * 100_000)
    assert list(store.walk("steps")) == []


def test_a_heartbeat_survives_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = AttemptLease(store, "x.t1-aa")
    lease.start({})
    monkeypatch.setattr(os, "fsync", _failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):  # as whoever beats catches it
        lease.beat()
    monkeypatch.undo()
    lease.beat()


def test_a_write_that_may_not_last_is_no_success(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("records/first.json", b"")  # the folder is there
    monkeypatch.setattr(os, "fsync", _failing(errno.EIO, after=1))  # the folder's, not the file's
    with pytest.raises(StoreError, match=r"records/a.json was not written: Input/output error"):
        store.create("records/a.json", b"ours")


def test_a_new_folders_name_is_synced_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda opened: synced.append(Path(f"/proc/self/fd/{opened}").readlink())
    )
    store.create("records/runs/a.json", b"")
    assert {store.root, store.local("records"), store.local("records/runs")} <= set(synced)


@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK], ids=errno.errorcode.get
)
def test_without_hard_links_nothing_is_created(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", _failing(number))
    with pytest.raises(StoreError, match=r"records lies on .* without hard links.*--store"):
        store.create("records/a.json", b"ours")
    assert list(store.walk("records")) == []


def test_a_reply_that_was_lost_and_asked_for_again_counts_as_done(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)  # as a network file system's client does: FileExistsError

    monkeypatch.setattr(os, "link", twice)
    assert store.create("records/a.json", b"ours") is True
    assert store.create("records/a.json", b"ours") is False


@pytest.mark.parametrize("gone", ["removed", "unmounted"])
def test_a_store_that_has_vanished_is_not_an_empty_one(store: Store, gone: str) -> None:
    store.create("records/a.json", b"1")
    shutil.rmtree(store.root)
    if gone == "unmounted":  # its mount point is left
        Path(store.root).mkdir()
    for do in (
        store.list,
        store.read,
        lambda x: list(store.walk(x)),
        lambda x: store.create(x, b""),
    ):
        with pytest.raises(StoreError, match=r"no store.json any more.*--store"):
            do("records/b.json")
    assert not store.local("records").exists()


def test_an_unreadable_file_does_not_count_as_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("records/a.json", b"1")
    monkeypatch.setattr(os, "open", _failing(errno.EACCES))
    with pytest.raises(StoreError, match=r"records/a.json cannot be read: Permission denied"):
        store.read("records/a.json")
    monkeypatch.setattr(os, "listdir", _failing(errno.EIO))
    with pytest.raises(StoreError, match=r"records cannot be listed: Input/output error"):
        store.list("records")


def test_a_download_that_finds_the_disk_full_leaves_no_folder(store: Store, tmp_path: Path) -> None:
    for name in ("a", "b", "c/d"):
        store.create(f"work/x/{name}", name.encode() * 10_000)
    with (
        _no_file_over(15_000),
        pytest.raises(StoreError, match="back was not written: File too large"),
    ):
        store.download_folder("work/x", tmp_path / "back")
    assert not list(tmp_path.glob("*back*"))


# ── Who leads ────────────────────────────────────────────────────────────────────────────────


def test_a_leader_leads_until_45_seconds_pass_without_renewal(
    store: Store,
) -> None:
    mine, theirs = Clock(), Clock()
    theirs.now = 5.0  # the clocks of two machines have nothing in common
    first, second = Leadership(store, "bot", mine), Leadership(store, "bot", theirs)
    assert first.held()
    assert not second.held()
    theirs.now += 44.9
    assert not second.held()
    theirs.now += 0.1
    assert second.held()
    assert not first.held()


def test_a_leader_that_renews_is_never_replaced(store: Store) -> None:
    clock = Clock()
    first, second = Leadership(store, "bot", clock), Leadership(store, "bot", clock)
    for _ in range(40):
        assert first.held()
        assert not second.held()
        clock.now += 14.0


def test_a_released_lead_is_taken_at_once(store: Store) -> None:
    first, second = Leadership(store, "bot"), Leadership(store, "bot")
    assert first.held()
    assert not second.held()
    first.release()
    assert second.held()


def test_one_of_many_processes_takes_a_stale_lead(store: Store) -> None:
    clock = Clock()
    assert Leadership(store, "bot", clock).held()
    rivals = [Leadership(Store(store.root), "bot", clock) for _ in range(8)]
    assert not any(rival.held() for rival in rivals)
    clock.now += STALE_AFTER
    assert len(race([rival.held for rival in rivals])) == 1


def test_a_process_that_slept_does_not_lead_with_an_old_number(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    first, second = Leadership(store, "bot", clock), Leadership(Store(store.root), "bot", clock)
    assert first.held()
    clock.now += RENEW_EVERY
    create = store.create

    def late(name: str, data: bytes) -> bool:
        monkeypatch.undo()
        assert not second.held()  # it sees the lease for the first time
        clock.now += STALE_AFTER
        for _ in range(3):  # its second renewal removes the number that `first` is about to write
            assert second.held()
            clock.now += RENEW_EVERY
        return create(name, data)

    monkeypatch.setattr(store, "create", late)
    assert not first.held()
    assert second.held()
    assert not first.held()
    assert len(store.list("leases/bot")) <= 3


def test_superseded_generations_are_removed(store: Store) -> None:
    clock = Clock()
    leader = Leadership(store, "bot", clock)
    for _ in range(50):
        leader.held()
        clock.now += RENEW_EVERY
    assert len(store.list("leases/bot")) <= 3


# ── Attempts' leases ─────────────────────────────────────────────────────────────────────────


def test_an_attempt_is_begun_once(store: Store) -> None:
    assert AttemptLease(store, "x.t1-aa").start({"pid": 1})
    assert not AttemptLease(store, "x.t1-aa").start({"pid": 2})
    assert json.loads(store.require("leases/x.t1-aa/start.json")) == {"pid": 1}


def test_a_beating_attempt_never_stands_still_and_a_silent_one_does(store: Store) -> None:
    clock = Clock()
    lease, watch = AttemptLease(store, "x.t1-aa"), LeaseWatch(store, clock)
    assert watch.look("x.t1-aa") == LeaseState()
    lease.start({})
    for _ in range(20):
        lease.beat()
        assert watch.look("x.t1-aa").still_for == 0
        clock.now += 10
        assert watch.look("x.t1-aa").still_for == 10
    clock.now += 35
    seen = watch.look("x.t1-aa")
    assert seen.started
    assert not seen.released
    assert seen.still_for == STALE_AFTER
    assert len(store.list("leases/x.t1-aa")) == 4  # the start, the first beat and the last two


class Failing(AttemptLease):
    def beat(self) -> None:
        raise OSError("the disk is full")


def test_each_lease_is_beaten_for_whatever_another_meets_and_none_that_is_over(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, failing = (
        kind(store, name)
        for kind, name in ((AttemptLease, "x-1"), (AttemptLease, "x-2"), (Failing, "x-3"))
    )

    def wait_for_beats(name: str, more_than: list[str]) -> None:
        until = time.monotonic() + 30
        while store.list(f"leases/{name}") <= more_than:
            assert time.monotonic() < until, f"no beat of {name}"
            time.sleep(0.005)

    with first.beating(0.01), failing.beating(0.01):
        with second.beating(0.01):
            wait_for_beats("x-1", [])
            wait_for_beats("x-2", [])
        seen = store.list("leases/x-2")
        wait_for_beats("x-1", store.list("leases/x-1"))
        assert store.list("leases/x-2") == seen
    assert "heartbeat: the disk is full" in capfd.readouterr().err


def test_a_withdrawn_attempt_cannot_be_begun_and_a_begun_one_not_withdrawn(store: Store) -> None:
    watch = LeaseWatch(store)
    assert AttemptLease(store, "x.t1-aa").withdraw()
    assert not AttemptLease(store, "x.t1-aa").start({"pid": 1})
    assert watch.look("x.t1-aa").withdrawn
    assert not watch.look("x.t1-aa").started
    AttemptLease(store, "x.t2-bb").start({"pid": 1})
    assert not AttemptLease(store, "x.t2-bb").withdraw()
    assert watch.look("x.t2-bb").started
    assert not watch.look("x.t2-bb").withdrawn


def test_a_lease_that_cannot_be_listed_counts_as_begun_and_stands_still(store: Store) -> None:
    clock = Clock()
    watch = LeaseWatch(store, clock)
    store.local("leases").mkdir()
    store.local("leases/x.t1-aa").symlink_to("x.t1-aa")
    assert watch.look("x.t1-aa").started
    clock.now += STALE_AFTER
    assert watch.look("x.t1-aa").still_for == STALE_AFTER


def test_a_pipe_in_place_of_a_file_is_an_error_and_does_not_block(store: Store) -> None:
    store.local("records").mkdir()
    os.mkfifo(store.local("records/pipe.json"))
    store.local("records/folder.json").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(StoreError, match=f"{name}.json is .*not a regular file"):
            store.read(f"records/{name}.json")


def test_the_cache_drops_what_was_read_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_SEEN", 100)
    store = Store(tmp_path)
    for n in range(50):
        store.create(f"records/{n}.json", b"x" * 30)
    for n in range(50):
        assert store.read(f"records/{n}.json") == b"x" * 30
    assert sum(map(len, store._seen.values())) <= 100
    assert "records/49.json" in store._seen
