"""One suite for every place that a store may lie in: local disk, a bucket of the emulator (which
ignores preconditions, so that who is first is asked of the others alone), and a bucket of a fake
that honours them."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gcp_storage_emulator.server import create_server

from runner.store import gcs
from runner.store.leases import RENEW_EVERY, STALE_AFTER, AttemptLease, Leadership, LeaseWatch
from runner.store.store import Store, StoreError
from tests import fake_gcs
from tests.unit.runner.test_store import Clock, race

ONCE = ("disk", "fake")
EVERYWHERE = (*ONCE, "emulator")
LARGE = bytes(range(256)) * (36 << 10)  # 9 MiB: more than the client sends in one request
ODD = (b"", b"\r\n\r\n--\x00\xff", "Zürich, 東京\n".encode(), bytes(range(256)))


@pytest.fixture(scope="module")
def fake() -> Iterator[fake_gcs.FakeGcs]:
    with fake_gcs.serving() as fake:
        yield fake


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
    server.start()
    yield f"http://127.0.0.1:{server._api._httpd.server_address[1]}"
    server.stop()


@pytest.fixture(params=EVERYWHERE)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path | str:
    """Where a new store may be made."""
    if request.param == "disk":
        return tmp_path / "store"
    if request.param == "fake":
        fake: fake_gcs.FakeGcs = request.getfixturevalue("fake")
        fake.buckets.setdefault("bucket", {})
        url = fake.url
    else:
        url = request.getfixturevalue("emulator")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    monkeypatch.setattr(gcs, "RETRY", gcs.RETRY.with_delay(initial=0.01))
    return f"gs://bucket/{request.node.name.partition('[')[0]}"


@pytest.fixture
def store(place: Path | str) -> Store:
    return Store(place)


once = pytest.mark.parametrize("place", ONCE, indirect=True)


# ── Who is first ─────────────────────────────────────────────────────────────────────────────


@once
def test_one_of_eight_concurrent_creates_succeeds_and_its_bytes_stay(store: Store) -> None:
    stores = [Store(store.root) for _ in range(8)]
    for name in (f"records/r{n}.json" for n in range(5)):
        tries: list[Callable[[], bool]] = [
            lambda mine=mine, number=number, name=name: mine.create(name, b"%d" % number * 1000)
            for number, mine in enumerate(stores)
        ]
        won = race(tries)
        assert len(won) == 1
        assert store.peek(name) == b"%d" % won[0] * 1000


@once
def test_equal_bytes_do_not_make_two_winners(store: Store) -> None:
    assert store.create("leases/a/released.json", b"{}\n")
    assert not Store(store.root).create("leases/a/released.json", b"{}\n")


@once
def test_a_removed_name_can_be_created_again(store: Store) -> None:
    assert store.create("leases/bot/1.json", b"1")
    assert store.read("leases/bot/1.json") == b"1"
    store.remove("leases/bot/1.json")
    assert store.create("leases/bot/1.json", b"2")
    assert store.read("leases/bot/1.json") == b"2"


@once
def test_a_folder_is_uploaded_once_and_goes_on_where_it_was_left(
    store: Store, tmp_path: Path
) -> None:
    folder = _folder(tmp_path)
    store.create("steps/tokens/ab/1/part", (folder / "part").read_bytes())  # an earlier call's
    store.upload_folder("steps/tokens/ab/1", folder)
    store.upload_folder("steps/tokens/ab/1", folder)
    for other in (b"paRt", b"part and more", b"par"):
        (folder / "part").write_bytes(other)
        with pytest.raises(StoreError, match=r"ab/1/part is there with other bytes"):
            store.upload_folder("steps/tokens/ab/1", folder)
    assert store.peek("steps/tokens/ab/1/part") == b"part"


@once
def test_an_attempt_is_begun_once(store: Store) -> None:
    assert AttemptLease(store, "x.t1-aa").start({"pid": 1})
    assert not AttemptLease(Store(store.root), "x.t1-aa").start({"pid": 1})
    assert not AttemptLease(Store(store.root), "x.t1-aa").withdraw()


@once
def test_one_of_many_processes_takes_a_stale_lead(store: Store) -> None:
    clock = Clock()
    assert Leadership(store, "bot", clock).held()
    rivals = [Leadership(Store(store.root), "bot", clock) for _ in range(8)]
    assert not any(rival.held() for rival in rivals)
    clock.now += STALE_AFTER
    assert len(race([rival.held for rival in rivals])) == 1


# ── Reading and listing ──────────────────────────────────────────────────────────────────────


def test_a_write_is_visible_to_other_processes_at_once(store: Store, place: Path | str) -> None:
    other = Store(place)
    for number in range(5):
        name = f"records/plans/{number}.json"
        assert other.read(name) is None
        assert store.create(name, b"%d" % number)
        assert other.read(name) == b"%d" % number
        assert other.list("records/plans") == [f"{n}.json" for n in range(number + 1)]


def test_a_store_keeps_its_id_and_two_stores_differ(store: Store, place: Path | str) -> None:
    other = Store(f"{place}-2") if isinstance(place, str) else Store(place.with_name("other"))
    assert Store(place).id == Store(store.root).id == store.id
    assert other.id != store.id


def test_a_store_is_not_made_where_it_is_only_to_be_looked_at(place: Path | str) -> None:
    with pytest.raises(StoreError, match=r"There is no store at .*--store"):
        Store(place, make=False)
    made = Store(place)
    assert Store(place, make=False).id == made.id


def test_a_reader_sees_a_whole_file_or_none(store: Store, place: Path | str) -> None:
    seen, over = [], threading.Event()

    def read() -> None:
        other = Store(place)
        while not over.is_set():
            seen.append(other.peek("steps/large"))

    thread = threading.Thread(target=read)
    thread.start()
    store.create("steps/large", LARGE)
    over.set()
    thread.join()
    assert store.peek("steps/large") == LARGE
    assert set(map(len, filter(None, seen))) <= {len(LARGE)}


def test_bytes_round_trip(store: Store) -> None:
    for number, data in enumerate(ODD):
        assert store.create(f"records/{number}", data)
        assert store.read(f"records/{number}") == data
        assert store.peek(f"records/{number}", 5) == data[:5]
        assert store.peek(f"records/{number}", 3, 2) == data[2:5]
        assert store.peek(f"records/{number}", 5, 10_000) == b""
        assert store.peek(f"records/{number}", start=-4) == data[-4:]
        assert store.peek(f"records/{number}", start=-100_000_000) == data
    assert store.read("records/none") is None
    with pytest.raises(StoreError, match="has no records/none"):
        store.require("records/none")


def test_odd_names_round_trip(store: Store) -> None:
    names = sorted(["ä.json", "a b", "50%?x=1&y#z", "東京.json", "a+b", "~", 'q"q', "a%2Fb"])
    for name in names:
        assert store.create(f"records/{name}", name.encode())
    assert store.list("records") == names
    assert [store.read(f"records/{name}") for name in names] == [name.encode() for name in names]


def test_a_listing_is_sorted_and_has_only_what_is_directly_in_the_folder(store: Store) -> None:
    for name in ("9", "10", "b/1", "b/2", "b/3/4", "c", "d/e/f", "a", ".hidden", "e", "f", "g"):
        store.create(f"records/x/{name}", b"")
    store.create("records/xy/1", b"")
    assert store.list("records/x") == ["10", "9", "a", "b", "c", "d", "e", "f", "g"]
    assert store.list("records/x/b") == ["1", "2", "3"]
    assert store.list("records/none") == store.list("records/x/a") == []
    assert store.list("") == ["records", "store.json"]


def test_a_walk_sees_every_file_with_its_size(store: Store) -> None:
    sizes = {f"work/a/{n}": n for n in range(5)} | {"work/a/out/log.txt": 7, "work/b/x": 1}
    for name, size in sizes.items():
        store.create(name, b"x" * size)
    assert {entry.name: entry.size for entry in store.walk("work")} == sizes
    assert all(entry.at > 1e9 for entry in store.walk("work"))
    direct = {entry.name: entry.folder for entry in store.walk("work/a", deep=False)}
    assert direct == {f"work/a/{n}": False for n in range(5)} | {"work/a/out": True}
    assert {entry.name for entry in store.walk()} == sizes.keys() | {"store.json"}
    assert list(store.walk("work/none")) == []


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "a//b", "", "a\0b", "a/."])
def test_names_that_leave_the_store_are_refused(store: Store, name: str) -> None:
    for do in (store.local, store.url, store.read, store.remove, lambda x: store.create(x, b"")):
        with pytest.raises(StoreError, match="inside the store"):
            do(name)


def test_removing_a_superseded_lease_is_seen_by_all(store: Store, place: Path | str) -> None:
    store.create("leases/bot/1.json", b"1")
    store.create("leases/bot/2.json", b"2")
    store.remove("leases/bot/1.json")
    store.remove("leases/bot/1.json")  # somebody else was faster
    assert store.read("leases/bot/1.json") is None
    assert Store(place).list("leases/bot") == ["2.json"]


# ── Leases ───────────────────────────────────────────────────────────────────────────────────


def test_one_process_leads_until_it_stops_renewing(store: Store, place: Path | str) -> None:
    mine, theirs = Clock(), Clock()
    first, second = Leadership(store, "bot", mine), Leadership(Store(place), "bot", theirs)
    assert first.held()
    assert not second.held()
    for _ in range(4):
        mine.now += RENEW_EVERY
        theirs.now += STALE_AFTER - 1
        assert first.held()
        assert not second.held()
    assert len(store.list("leases/bot")) <= 3
    theirs.now += STALE_AFTER
    assert second.held()
    assert not first.held()
    second.release()
    assert first.held()


def test_an_attempts_signs_of_life_are_seen(store: Store, place: Path | str) -> None:
    clock = Clock()
    lease, watch = AttemptLease(store, "x.t1-aa"), LeaseWatch(Store(place), clock)
    assert not watch.look("x.t1-aa").started
    lease.start({"pid": 1})
    for _ in range(5):
        clock.now += 10
        lease.beat()
        assert watch.look("x.t1-aa").still_for == 0
    clock.now += STALE_AFTER
    seen = watch.look("x.t1-aa")
    assert seen.started
    assert not seen.released
    assert seen.still_for == STALE_AFTER
    lease.release()
    assert watch.look("x.t1-aa").released
    AttemptLease(store, "x.t2-bb").withdraw()
    assert watch.look("x.t2-bb").withdrawn


def test_until_a_worker_speaks_the_state_of_its_job_is_a_sign_of_life(
    store: Store, place: Path | str
) -> None:
    clock = Clock()
    watch = LeaseWatch(Store(place), clock)
    watch.look("x.t1-aa", "pending")
    clock.now += 7200
    assert watch.look("x.t1-aa", "pending").still_for == 7200
    assert watch.look("x.t1-aa", "running").still_for == 0
    clock.now += 60
    assert watch.look("x.t1-aa", "running").still_for == 60
    AttemptLease(store, "x.t1-aa").start({"pid": 1})
    watch.look("x.t1-aa", "running")
    clock.now += STALE_AFTER
    assert watch.look("x.t1-aa", "unknown").still_for == STALE_AFTER


# ── Folders, and what lies beside the client ─────────────────────────────────────────────────


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "part").write_bytes(b"part")
    (folder / "deep" / "er" / "empty").write_bytes(b"")
    for number in range(9):
        (folder / "deep" / f"{number}.bin").write_bytes(os.urandom(1000 + number))
    return folder


def _bytes(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_folder_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    folder, back = _folder(tmp_path), tmp_path / "inner" / "back"
    store.upload_folder("work/x/out", folder)
    store.create("work/x/outer", b"not of it")
    store.download_folder("work/x/out", back)
    assert _bytes(back) == _bytes(folder)
    assert [path.name for path in back.parent.iterdir()] == ["back"]
    with pytest.raises(StoreError, match="not empty"):
        store.download_folder("work/x/out", back)


def test_a_folder_that_is_not_there_is_no_empty_one(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="work/none holds no files"):
        store.download_folder("work/none", tmp_path / "back")
    with pytest.raises(StoreError, match="is no folder"):
        store.upload_folder("work/none", tmp_path / "none")
    assert not list(tmp_path.glob("*back*"))


def test_only_regular_files_are_uploaded(store: Store, tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="link"):
        store.upload_folder("work/x/out", folder)
    assert "link" not in store.list("work/x/out")


BESIDE = """
import sys
import numpy as np
import tensorstore as ts
folder = sys.argv[1] if "://" in sys.argv[1] else {"driver": "file", "path": sys.argv[1]}
files = ts.KvStore.open(folder).result()
assert bytes(files.read("ours").result().value) == b"from the store"
files.write("theirs", b"from TensorStore").result()
spec = {"driver": "zarr3", "kvstore": (files / "array/").spec().to_json()}
ts.open(spec, create=True, dtype=ts.int64, shape=[1000]).result().write(np.arange(1000)).result()
assert (ts.open(spec, open=True).result().read().result() == np.arange(1000)).all()
"""

TOKENS = """
import sys
from engine.data.token_store import TokenStore
made = TokenStore.build(sys.argv[1], ["one text", "and another"] * 1000)
made.verify()
assert TokenStore.open(sys.argv[1]).read(slice(8, 11)).tobytes() == b"and"
"""


def _with_tensorstore(code: str, url: str) -> None:
    """In a process of its own, since TensorStore asks for its environment once."""
    environment = os.environ | {
        "TENSORSTORE_GCS_HTTP_URL": os.environ.get("STORAGE_EMULATOR_HOST", ""),
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
    }
    command = [sys.executable, "-c", code, url]
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


def test_tensorstore_and_the_store_see_the_same_files(store: Store) -> None:
    store.create("steps/a b=1,c%41/ours", b"from the store")
    _with_tensorstore(BESIDE, store.url("steps/a b=1,c%41") + "/")
    assert store.read("steps/a b=1,c%41/theirs") == b"from TensorStore"
    assert store.list("steps/a b=1,c%41") == ["array", "ours", "theirs"]


@once  # the emulator knows no generations, no ranges from the end, and no range of a listing
def test_a_token_store_lies_where_the_store_says(store: Store) -> None:
    store.create("steps/tokens/other", b"")
    _with_tensorstore(TOKENS, store.url("steps/tokens/ab/1/train"))
    found = store.list("steps/tokens/ab/1/train")
    assert found == ["manifest.json", "offsets", "tokenizer.json", "tokens"]
    assert store.list("steps/tokens") == ["ab", "other"]
