"""A bucket that fails: what is written, read and said then. Fakes of its answers, by name."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.store import gcs
from runner.store.leases import AttemptLease, Leadership, LeaseWatch
from runner.store.store import Store, StoreError
from tests import fake_gcs

ENDLESS = float("inf")
DENIED = "ada@lab.example does not have storage.objects.create access"


@pytest.fixture(scope="module")
def server() -> Iterator[fake_gcs.FakeGcs]:
    with fake_gcs.serving() as fake:
        yield fake


@pytest.fixture
def fake(server: fake_gcs.FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_gcs.FakeGcs]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setattr(gcs, "RETRY", gcs.RETRY.with_delay(initial=0.01, maximum=0.02))
    server.buckets["bucket"] = {}
    yield server
    server.peace()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, fake: fake_gcs.FakeGcs) -> None:  # noqa: ARG001
    """What fails is given up after 0.3 s."""
    monkeypatch.setattr(gcs, "RETRY", gcs.RETRY.with_timeout(0.3))


@pytest.fixture
def store(fake: fake_gcs.FakeGcs) -> Store:  # noqa: ARG001
    return Store("gs://bucket/lab")


# ── Writing ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [10, 9 << 20], ids=["in one request", "in several"])
@pytest.mark.parametrize("status", [503, 502, 429, 408])
def test_a_lost_reply_is_found_out_by_who_wrote_the_object(
    store: Store, fake: fake_gcs.FakeGcs, size: int, status: int
) -> None:
    fake.trouble("insert", "lost", status=status, times=1)
    assert store.create("records/a.json", b"x" * size) is True
    assert store.peek("records/a.json") == b"x" * size
    assert Store(store.root).create("records/a.json", b"x" * size) is False


def test_after_a_lost_reply_the_first_of_two_equal_writes_wins(
    store: Store, fake: fake_gcs.FakeGcs
) -> None:
    assert Store(store.root).create("leases/a/start.json", b"{}\n") is True
    fake.trouble("insert", "refused", times=1)
    assert store.create("leases/a/start.json", b"{}\n") is False


def test_a_short_outage_of_the_bucket_is_retried(store: Store, fake: fake_gcs.FakeGcs) -> None:
    for what in ("insert", "download", "list", "delete"):
        fake.trouble(what, "refused", times=2)
    assert store.create("records/a.json", b"1") is True
    assert store.read("records/a.json") == b"1"
    assert store.list("records") == ["a.json"]
    store.remove("records/a.json")
    assert store.list("records") == []


@pytest.mark.usefixtures("impatient")
def test_a_long_outage_of_the_bucket_is_an_error(store: Store, fake: fake_gcs.FakeGcs) -> None:
    fake.trouble("insert", "refused", message="We are sorry.", times=ENDLESS)
    words = r"a.json was not written: 503: We are sorry, for 0.3 s; .*doing it again is safe"
    with pytest.raises(StoreError, match=words) as e:
        store.create("records/a.json", b"1")
    assert isinstance(e.value, OSError)  # a heartbeat goes on
    fake.peace()
    assert store.read("records/a.json") is None


def test_an_upload_that_ends_in_the_middle_leaves_nothing(
    store: Store, fake: fake_gcs.FakeGcs
) -> None:
    with socket.create_connection(("127.0.0.1", int(fake.url.rpartition(":")[2]))) as line:
        line.sendall(
            b"POST /upload/storage/v1/b/bucket/o?uploadType=media&name=lab/records/a.json HTTP/1.1"
            b"\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf of it"
        )
    assert store.read("records/a.json") is None
    assert store.list("records") == []
    assert store.create("records/a.json", b"1") is True


def test_bytes_that_change_on_their_way_are_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = fake_gcs._parts
    monkeypatch.setattr(fake_gcs, "_parts", lambda *x: (split(*x)[0], split(*x)[1] + b"!"))
    with pytest.raises(
        StoreError, match=r"a.json was not written: 400: .*CRC32C.*nothing was done"
    ):
        store.create("records/a.json", b"1")
    assert store.read("records/a.json") is None


# ── Reading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_a_download_that_breaks_off_goes_on(
    store: Store, fake: fake_gcs.FakeGcs, size: int
) -> None:
    store.create("texts/a", bytes(range(250)) * (size // 250))
    fake.trouble("download", "cut", times=1)
    assert store.peek("texts/a") == bytes(range(250)) * (size // 250)


@pytest.mark.usefixtures("impatient")
def test_a_download_that_never_ends_well_is_no_shorter_file(
    store: Store, fake: fake_gcs.FakeGcs
) -> None:
    store.create("texts/a", bytes(1000))
    fake.trouble("download", "cut", times=ENDLESS)
    with pytest.raises(StoreError, match="texts/a cannot be read"):
        store.peek("texts/a")


def test_bytes_that_are_not_those_stored_are_not_read(
    store: Store, fake: fake_gcs.FakeGcs, tmp_path: Path
) -> None:
    store.create("texts/a", b"one")
    fake.trouble("download", "changed", times=ENDLESS)
    with pytest.raises(StoreError, match=r"texts/a cannot be read: .*checksums differ"):
        store.read("texts/a")
    with pytest.raises(StoreError, match="checksums differ"):
        store.download_folder("texts", tmp_path / "back")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("impatient")
def test_a_listing_that_breaks_off_between_two_pages_is_not_taken_for_all(
    store: Store, fake: fake_gcs.FakeGcs
) -> None:
    names = [f"{number}.json" for number in range(2 * fake_gcs.PAGE + 1)]
    for name in names:
        store.create(f"records/{name}", b"")
    assert store.list("records") == names
    fake.trouble("list", "refused", times=ENDLESS, skip=1)
    with pytest.raises(StoreError, match="records cannot be listed"):
        store.list("records")


@pytest.mark.usefixtures("impatient")
def test_a_lease_that_cannot_be_listed_is_not_taken_for_a_dead_one(
    store: Store, fake: fake_gcs.FakeGcs
) -> None:
    fake.trouble("list", "refused", times=ENDLESS)
    with pytest.raises(StoreError, match=r"leases/x.t1-aa cannot be listed"):
        LeaseWatch(store).look("x.t1-aa")


# ── Buckets and credentials ──────────────────────────────────────────────────────────────────


def _all(store: Store) -> list[Callable[[], object]]:
    return [
        lambda: store.create("records/b.json", b"1"),
        lambda: store.read("records/b.json"),
        lambda: store.list("records"),
        lambda: list(store.walk()),
        lambda: store.remove("records/b.json"),
    ]


def test_a_bucket_that_has_vanished_is_not_an_empty_store(
    store: Store, fake: fake_gcs.FakeGcs
) -> None:
    store.create("records/a.json", b"1")
    del fake.buckets["bucket"]
    for do in _all(store):
        with pytest.raises(StoreError, match=r"gs://bucket/lab: .*no such bucket.*--store"):
            do()


@pytest.mark.usefixtures("fake")
def test_a_store_in_no_bucket_is_refused() -> None:
    with pytest.raises(StoreError, match=r"gs://another: .*no such bucket"):
        Store("gs://another")


@pytest.mark.parametrize(("status", "words"), [(401, "Anonymous"), (403, f"403: {DENIED}")])
def test_wrong_credentials_are_said_with_what_is_needed(
    store: Store, fake: fake_gcs.FakeGcs, status: int, words: str
) -> None:
    for what in ("insert", "download", "list", "delete"):
        fake.trouble(what, "refused", status=status, message=DENIED, times=ENDLESS)
    for do in _all(store):
        with pytest.raises(StoreError, match=rf"not accepted \({words}.*Storage Object User"):
            do()
    with pytest.raises(StoreError, match="not accepted"):
        Store("gs://bucket/other")


def test_no_credentials_at_all_are_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(StoreError, match=r"none.json.*gcloud auth application-default login"):
        Store("gs://bucket/lab")


def test_an_identity_that_may_only_read_can_look_at_a_store(
    store: Store, fake: fake_gcs.FakeGcs
) -> None:
    fake.trouble("insert", "refused", status=403, message=DENIED, times=ENDLESS)
    assert Store(store.root, make=False).id == store.id
    assert Store(store.root).list("") == ["store.json"]


# ── Names ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "url", ["gs://", "gs://ab", "gs://Bucket", "gs://bucket//x", "gs://bucket/../x", "gs://b cket"]
)
def test_a_url_of_no_bucket_is_refused_with_what_one_looks_like(url: str) -> None:
    with pytest.raises(StoreError, match="write gs://bucket or gs://bucket/prefix"):
        Store(url)


@pytest.mark.parametrize("name", ["x" * 1100, "a\nb", "\udcff"])
def test_a_name_that_no_object_can_have_is_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="no name in a bucket"):
        store.create(name, b"")


def test_a_folder_that_a_console_has_made_is_no_file(store: Store, fake: fake_gcs.FakeGcs) -> None:
    store.create("work/x/a", b"1")
    for name in ("lab/work/", "lab/work/x/"):
        fake.buckets["bucket"][name] = fake_gcs.Stored(name, b"", 1, {})
    assert store.list("work") == ["x"]
    assert store.list("work/x") == ["a"]
    assert [entry.name for entry in store.walk("work")] == ["work/x/a"]


def test_objects_whose_names_leave_the_folder_are_not_downloaded(
    store: Store, fake: fake_gcs.FakeGcs, tmp_path: Path
) -> None:
    store.create("work/x/a", b"1")
    here = fake.buckets["bucket"]
    here["lab/work/x/../../../b"] = fake_gcs.Stored("lab/work/x/../../../b", b"2", 1, {})
    with pytest.raises(StoreError, match="not a name inside the store"):
        store.download_folder("work/x", tmp_path / "in" / "back")
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "in"])


# ── Two buckets ──────────────────────────────────────────────────────────────────────────────


def test_jobs_and_the_lab_share_all_but_the_bucket_with_the_records(
    fake: fake_gcs.FakeGcs,
) -> None:
    fake.buckets |= {"records": {}, "jobs": {}}
    lab, job = Store("gs://records/lab", jobs="gs://jobs/lab"), Store("gs://jobs/lab")
    x = "x0123456789abcdef"
    lab.create(f"records/executions/{x}/execution.json", b"{}")
    lab.create(f"work/{x}.t1-aa/spec.json", b"{}")
    assert Leadership(lab, "bot").held()
    asked = len(fake.asked)
    assert AttemptLease(job, f"{x}.t1-aa").start({"pid": 1})
    assert job.read(f"work/{x}.t1-aa/spec.json") == b"{}"
    job.create(f"work/{x}.t1-aa/out/finished.json", b"{}")
    job.create("steps/tokens/ab/manifest.json", b"{}")
    assert set(fake.asked[asked:]) == {"jobs"}  # with an identity that may not enter the other
    assert lab.list(f"leases/{x}.t1-aa") == ["start.json"]
    assert lab.read(f"work/{x}.t1-aa/out/finished.json") == b"{}"
    job.create("records/forged.json", b"{}")
    job.create("leases/bot/999999999999.json", b"{}")
    assert lab.list("") == ["leases", "records", "steps", "store.json", "work"]
    assert lab.list("records") == ["executions"]
    assert lab.list("leases/bot") == ["000000000001.json"]
    assert lab.list("leases") == ["bot", f"{x}.t1-aa"]
    assert len({entry.name for entry in lab.walk()}) == len(list(lab.walk())) == 7
    assert lab.id != job.id
    assert lab.url("work/a") == "gs://jobs/lab/work/a"


def test_a_store_on_two_disks_has_its_work_on_the_second(tmp_path: Path) -> None:
    lab = Store(tmp_path / "a", jobs=tmp_path / "b")
    lab.create("records/a.json", b"1")
    lab.create("work/x/a", b"2")
    assert lab.local("work/x/a") == tmp_path / "b" / "work/x/a"
    assert lab.local("records/a.json").read_bytes() == b"1"
    lab.remove("work/x/a")
    lab.prune("work/x")
    assert lab.list("work") == []
    with pytest.raises(StoreError, match=r"There is no store at .*/c"):
        Store(tmp_path / "a", jobs=tmp_path / "c", make=False)
