"""One makes, others wait: tables on virtual clocks, every death, and a machine of interleavings."""

import errno
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from runner.lib import fault_points, process_owner
from runner.store import artifacts
from runner.store import digests as store_digests
from runner.store.artifacts import BadOutput, End, Made, MakingFailed, find, make, newest
from runner.store.leases import STALE_AFTER, AttemptLease
from runner.store.store import Store
from tests.examples import examples
from tests.runner.maker_process import (
    END,
    FINGERPRINT,
    KILL,
    NAME,
    TRACES,
    SteppingStore,
    Trace,
    read_whole,
    text_of,
    write,
)

STEP = f"steps/{NAME}/{FINGERPRINT[:16]}"
OVER = "over"
ENDED: set[str] = set()  # processes


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


class Actor(threading.Thread):
    """Calls `make` in a thread that runs only when it is told to, and stops at every point.

    Its clock is its own, and each of its sleeps is longer than asked for.
    """

    def __init__(self, root: Path, who: str, failing: bool = False, here: bool = False) -> None:
        """`here`: it is on the machine of all others that are, who know when it has died."""
        super().__init__(daemon=True)
        self.process = f"process {id(self)} of {root}" if here else ""
        self.who, self.failing = who, failing
        self.at, self.now, self.hurt = "not begun", 1e6 * ord(who), failing
        self.lease: AttemptLease | None = None  # while it builds
        self.made: Made | None = None
        self.failed: MakingFailed | None = None
        self._bug: BaseException | None = None
        self._error: BaseException | None = None
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._store = SteppingStore(root, self._reach)
        self.start()

    def run(self) -> None:
        try:
            self._await_turn()
            self.made = make(
                self._store,
                NAME,
                FINGERPRINT,
                lambda folder: write(folder, text_of(self.who), self._reach, self.failing),
                {},
                by=self.who,
                monotonic=lambda: self.now,
                sleep=self._sleep,
            )
        except MakingFailed as error:
            self.failed = error
        except fault_points.Ended:
            ENDED.add(self.process)
        except BaseException as error:
            self._bug = error
        self.at = OVER
        self._back.release()

    def _reach(self, point: str) -> None:
        if threading.current_thread() is self:
            self.at = point
            self._back.release()
            self._await_turn()

    def _await_turn(self) -> None:
        self._turn.acquire()
        if self._error:
            raise self._error

    def _sleep(self, _: float) -> None:
        self._reach("sleep")
        self.now += 10

    def go(self, error: BaseException | None = None) -> None:
        """Run to the next point; or raise `error` where it stands, and run on from there."""
        self._error = error
        self.hurt = self.hurt or error is not None
        self._turn.release()
        self._back.acquire()
        if self._bug:
            raise self._bug

    def to(self, point: str) -> None:
        """Run until it stands at `point` or is over."""
        for _ in range(5_000):
            self.go()
            if self.at in (point, OVER):
                return
        raise AssertionError(f"{self.who} never came to its end, and is at {self.at!r}")

    def to_the_end(self) -> "Actor":
        """Run until it is over."""
        self.to(OVER)
        return self


@pytest.fixture(autouse=True)
def _beats_by_hand_and_no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    beating = AttemptLease.beating

    @contextmanager
    def by_hand(lease: AttemptLease, every: float) -> Iterator[None]:
        actor = threading.current_thread()
        if not isinstance(actor, Actor):
            with beating(lease, every):
                yield
            return
        actor.lease = lease
        try:
            yield
        finally:
            actor.lease = None

    def has_ended(name: str) -> bool:
        return bool(name and me()) and name in ENDED

    def me() -> str:
        return str(getattr(threading.current_thread(), "process", ""))

    monkeypatch.setattr(AttemptLease, "beating", by_hand)
    monkeypatch.setattr(process_owner, "me", me)
    monkeypatch.setattr(process_owner, "has_ended", has_ended)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "store"


def build(who: str = "a") -> Callable[[Path], None]:
    return lambda folder: write(folder, text_of(who), lambda _: None)


def never(_: object) -> None:
    raise AssertionError("nobody builds or waits here")


def made_by(root: Path, who: str = "a") -> Made:
    return make(Store(root), NAME, FINGERPRINT, build(who), {"do": "tokenize"}, by=who, sleep=never)


# ── What is made is found ────────────────────────────────────────────────────────────────────


def test_a_finished_output_is_reused(root: Path) -> None:
    made = made_by(root)
    assert read_whole(made) == text_of("a")
    assert made.folder.parent == root / STEP
    again = make(Store(root), NAME, FINGERPRINT, never, {}, sleep=never)
    assert again == made == find(Store(root), NAME, FINGERPRINT)
    assert find(Store(root), NAME, "f" * 64) is None
    assert find(Store(root), "another", FINGERPRINT) is None


def test_a_manifest_says_what_was_made_of_what_by_whom_and_how_long_it_took(root: Path) -> None:
    now = iter([5.0, 12.5])
    made = make(
        Store(root),
        NAME,
        FINGERPRINT,
        build(),
        {"tokenizer": "byte", "inputs": ["aa"]},
        by="x12.t1",
        receipt=lambda: {"python": "3.11"},
        monotonic=lambda: next(now, 0.0),
    )
    said = json.loads((root / STEP / "manifest.json").read_bytes())
    assert said["fingerprint"] == FINGERPRINT
    assert said["parts"] == {"tokenizer": "byte", "inputs": ["aa"]}
    assert (said["by"], said["receipt"], said["generation"]) == ("x12.t1", {"python": "3.11"}, 1)
    assert set(said["files"]) == {"first", "deep/second"}
    assert said["files"]["first"]["bytes"] == len(text_of("a"))
    assert made.manifest.seconds >= 0


def test_the_seconds_for_which_a_maker_waited_for_devices_do_not_count(root: Path) -> None:
    now = [0.0]

    def waits_and_makes(folder: Path) -> None:
        now[0] += 1000.0 + 7.5
        build()(folder)

    made = make(
        Store(root),
        NAME,
        FINGERPRINT,
        waits_and_makes,
        {},
        waited=lambda: 1000.0,
        monotonic=lambda: now[0],
    )
    assert made.manifest.seconds == 7.5


def test_equal_outputs_have_equal_digests_and_others_have_others(tmp_path: Path) -> None:
    digests = [
        made_by(tmp_path / name, who).manifest.output_sha256
        for name, who in (("one", "a"), ("two", "a"), ("three", "b"))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_an_output_with_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_digests, "MOST_LISTED", 2000)
    for number in range(10):
        (tmp_path / f"{number:0100d}").touch()
    with pytest.raises(BadOutput, match=r"10 of its files take 2,100 bytes to list, and 2,000"):
        store_digests.digests(tmp_path)


def test_a_file_that_would_run_as_its_owner_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sh").touch(0o755)
    assert store_digests.digests(tmp_path)
    (tmp_path / "sh").chmod(0o6755)
    with pytest.raises(BadOutput, match="would run as its owner"):
        store_digests.digests(tmp_path)


def test_a_manifest_is_read_as_far_as_one_can_be_long(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(root)
    monkeypatch.setattr(artifacts, "MOST_WORD", 100)
    store.create("steps/tokens/0123456789abcdef/manifest.json", b"x" * 101)
    with pytest.raises(BadOutput, match="larger than 100 bytes"):
        find(store, "tokens", "0123456789abcdef")


def test_an_output_may_be_empty(root: Path) -> None:
    made = make(Store(root), NAME, FINGERPRINT, lambda _: None, {})
    assert made.manifest.files == {}
    assert find(Store(root), NAME, FINGERPRINT) == made


def test_all_is_on_disk_before_it_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    then: list[set[int]] = []

    def reach(point: str) -> None:
        if point == "before end":
            then.append(set(synced))

    made = make(SteppingStore(root, reach), NAME, FINGERPRINT, build(), {})
    everything = {made.folder, *made.folder.rglob("*"), *made.folder.parents[:4]}
    assert {path.stat().st_ino for path in everything} <= then[0]


# ── What is damaged is refused ───────────────────────────────────────────────────────────────


def _link_away(path: Path) -> None:
    elsewhere = path.parents[3] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("a file is gone", lambda x: (x / "first").unlink(), "'first' is missing"),
    ("a file in a folder is gone", lambda x: (x / "deep/second").unlink(), "'deep/second' is miss"),
    ("a file too many", lambda x: (x / "deep/.more").touch(), "'deep/.more' is not in its manif"),
    ("a file is shorter", lambda x: (x / "first").write_text("a"), "'first' is not the one"),
    ("a file is a link", lambda x: _link_away(x / "first"), "'first', which is no regular file"),
    ("a folder is a link", lambda x: _link_away(x / "deep"), "'deep', which is no regular file"),
    ("a file is a pipe", lambda x: _pipe(x / "first"), "'first', which is no regular file"),
    ("all is gone", shutil.rmtree, "it is not there"),
    ("all is behind a link", _link_away, "behind a link"),
]


@pytest.mark.parametrize(("damage", "words"), [x[1:] for x in DAMAGES], ids=[x[0] for x in DAMAGES])
def test_a_damaged_output_is_refused_in_words(
    root: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(made_by(root).folder)
    for check in (True, False):
        with pytest.raises(BadOutput, match=words) as refused:
            find(Store(root), NAME, FINGERPRINT, check=check)
        assert f"Remove {root / STEP} and run again" in str(refused.value)
    with pytest.raises(BadOutput, match=words):
        make(Store(root), NAME, FINGERPRINT, never, {}, sleep=never)


def test_a_changed_byte_is_refused_by_all_but_plans_which_read_no_file(root: Path) -> None:
    made = made_by(root)
    (made.folder / "first").write_text(text_of("b"))
    with pytest.raises(BadOutput, match="'first' is not the one that was made"):
        find(Store(root), NAME, FINGERPRINT)
    with pytest.raises(BadOutput, match="'first' is not the one that was made"):
        make(Store(root), NAME, FINGERPRINT, never, {}, sleep=never)
    assert find(Store(root), NAME, FINGERPRINT, check=False) == made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fingerprint": FINGERPRINT[:16] + "f" * 48}, f"and not of {NAME} {FINGERPRINT}"),
        ({"name": "another"}, f"it is of another {FINGERPRINT}"),
        ({"maker": "../../../other"}, "is no Manifest: .*maker"),
        ({"files": {"first": {"sha256": "00", "bytes": 1}}}, "is no Manifest: .*sha256"),
        ({"spare": 1}, "is no Manifest: .*spare"),
    ],
)
def test_a_manifest_of_something_else_is_refused_in_words(
    root: Path, change: dict[str, object], words: str
) -> None:
    made_by(root)
    path = root / STEP / "manifest.json"
    said = json.loads(path.read_bytes()) | change
    path.write_text(json.dumps(said))
    with pytest.raises(BadOutput, match=f"(?s){words}"):
        find(Store(root), NAME, FINGERPRINT)


def test_a_step_whose_output_was_removed_is_made_again(root: Path) -> None:
    made_by(root)
    shutil.rmtree(root / STEP)
    assert find(Store(root), NAME, FINGERPRINT) is None
    again = made_by(root, "b")
    assert (read_whole(again), again.manifest.generation) == (text_of("b"), 2)


def test_a_step_whose_leases_were_removed_is_still_there(root: Path) -> None:
    made = made_by(root)
    shutil.rmtree(root / "leases")
    assert made_by(root, "b") == made


def test_a_lease_that_cannot_be_read_is_said_and_not_waited_for(root: Path) -> None:
    folder = root / "leases" / STEP / "1"
    folder.mkdir(parents=True)
    (folder / "start.json").write_text("{}\n")
    with pytest.raises(BadOutput, match=r"1/start\.json is no Start"):
        made_by(root)
    other = artifacts.Start(
        name=NAME, fingerprint=FINGERPRINT, generation=7, maker="0" * 16, by="", host=""
    )
    (folder / "start.json").write_bytes(other.canonical())
    with pytest.raises(BadOutput, match=r"speaks of .*/7"):
        made_by(root)


# ── What fails ───────────────────────────────────────────────────────────────────────────────


def test_a_failed_build_is_said_by_whom_it_happened_to_and_leaves_nothing(root: Path) -> None:
    failed = Actor(root, "a", failing=True).to_the_end().failed
    assert "could not be made: RuntimeError: shard 7 has no such column" in str(failed)
    assert isinstance(failed and failed.__cause__, RuntimeError)
    assert list((root / STEP).iterdir()) == []
    start, end = newest(Store(root), NAME, FINGERPRINT)
    assert start
    assert (start.by, start.generation) == ("a", 1)
    assert end == End(how="failed", why="RuntimeError: shard 7 has no such column")


def test_a_failure_costs_the_next_one_no_waiting(root: Path) -> None:
    Actor(root, "a", failing=True).to_the_end()
    Actor(root, "b", failing=True).to_the_end()
    assert made_by(root, "c").manifest.generation == 3


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda folder: (folder / "x").symlink_to("/etc/passwd"), "'x', which is no regular file"),
        (lambda folder: os.mkfifo(folder / "x"), "'x', which is no regular file"),
        (lambda folder: (folder / os.fsdecode(b"\xff")).touch(), "is not in UTF-8"),
        (lambda folder: folder.rmdir(), "it is not there"),
    ],
)
def test_an_output_that_cannot_be_shared_is_refused(
    root: Path, bad: Callable[[Path], object], words: str
) -> None:
    with pytest.raises(MakingFailed, match=f"could not be made: .*{words}"):
        make(Store(root), NAME, FINGERPRINT, bad, {})
    assert find(Store(root), NAME, FINGERPRINT) is None


def test_an_interrupted_maker_lets_the_next_start_at_once(root: Path) -> None:
    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(Store(root), NAME, FINGERPRINT, interrupt, {})
    assert made_by(root).manifest.generation == 2


# ── Who waits ────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_maker_returns_at_its_next_look(root: Path) -> None:
    maker, waiter = Actor(root, "a"), Actor(root, "b")
    maker.to("half")
    for _ in range(3):
        waiter.to("sleep")
    assert newest(Store(root), NAME, FINGERPRINT)[1] is None
    maker.to_the_end()
    waiter.to("sleep")
    assert waiter.at == OVER
    assert waiter.made == maker.made


def test_one_of_two_concurrent_makers_builds_and_the_other_waits(root: Path) -> None:
    maker, late = Actor(root, "a"), Actor(root, "b")
    late.to("before start")
    maker.to("half")
    late.to("sleep")
    assert late.at == "sleep"
    maker.to_the_end()
    assert late.to_the_end().made == maker.made
    assert maker.made
    assert list(maker.made.folder.parent.glob("*-*")) == [maker.made.folder]


def test_a_maker_that_beats_is_never_taken_for_dead(root: Path) -> None:
    maker, waiter = Actor(root, "a"), Actor(root, "b")
    maker.to("half")
    for _ in range(20):
        assert maker.lease
        maker.lease.beat()
        waiter.now += STALE_AFTER - 11
        waiter.to("sleep")
    maker.to_the_end()
    assert waiter.to_the_end().made == maker.made
    assert read_whole(maker.made) == text_of("a")


def test_a_silent_maker_is_taken_for_dead_after_45_seconds_of_the_watcher_and_no_sooner(
    root: Path,
) -> None:
    maker, waiter = Actor(root, "a"), Actor(root, "b")
    maker.to("half")
    waiter.to("sleep")
    waiter.now += STALE_AFTER - 10.1  # it sleeps for ten
    waiter.to("sleep")
    assert newest(Store(root), NAME, FINGERPRINT)[1] is None
    waiter.to("half")
    start, end = newest(Store(root), NAME, FINGERPRINT)
    assert start
    assert (start.generation, start.by, end) == (2, "b", None)


def test_makers_beat_by_themselves(root: Path) -> None:
    beaten = threading.Event()
    store = SteppingStore(root, lambda point: beaten.set() if point == "after beat" else None)

    def slow(_: Path) -> None:
        assert beaten.wait(60)

    make(store, NAME, FINGERPRINT, slow, {}, stale_after=0.05)
    assert beaten.is_set()


# ── Traces, deaths and full disks ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES.keys())
def test_makers_that_sleep_or_die_at_critical_points_do_no_harm(root: Path, trace: Trace) -> None:
    actors: dict[str, Actor] = {}
    ended = []
    for who, move in trace.moves:
        actor = actors.setdefault(who, Actor(root, who, failing=who == trace.failing))
        if move == KILL:
            actor.go(fault_points.Ended())
        elif move == END:
            ended.append(actor.to_the_end())
        else:
            actor.to(move)
            assert actor.at == move
    for actor in ended:
        if actor.failing:
            assert actor.failed
        else:
            assert actor.made
            assert read_whole(actor.made) == text_of(trace.wrote)
            assert actor.made.manifest.generation == trace.generation


def _points(root: Path) -> int:
    """How many points one passes who makes a step alone."""
    actor = Actor(root, "a")
    for count in range(1_000):
        actor.go()
        if actor.at == OVER:
            return count
    raise AssertionError


def _hit(root: Path, who: str, after: int, error: BaseException) -> Actor | None:
    """`who` is hit by the error at its point number `after`; None: it was over before."""
    actor = Actor(root, who)
    for _ in range(after + 1):
        actor.go()
        if actor.at == OVER:
            return None
    actor.go(error)
    if actor.at != OVER:
        actor.to_the_end()
    return actor


def test_after_deaths_at_any_two_points_the_third_one_has_a_whole_output(root: Path) -> None:
    played = 0
    for first in range(_points(root / "alone")):
        for second in range(100):
            place, played = root / f"{first}-{second}", played + 1
            assert _hit(place, "a", first, fault_points.Ended())
            died = _hit(place, "b", second, fault_points.Ended())
            made = Actor(place, "c").to_the_end().made
            assert made
            read_whole(made)
            if died is None:
                break
    assert played > 200


def test_a_disk_that_fails_at_any_point_is_no_success_and_no_torn_output(root: Path) -> None:
    for point in range(_points(root / "alone")):
        place = root / f"{point}"
        hit = _hit(place, "a", point, full())
        assert hit
        assert hit.made is None
        assert "No space left on device" in str(hit.failed)
        found = find(Store(place), NAME, FINGERPRINT)
        assert found is None or read_whole(found) == text_of("a")
        made = Actor(place, "b").to_the_end().made
        assert made
        assert found is None or made == found
        read_whole(made)


# ── All interleavings ────────────────────────────────────────────────────────────────────────

EFFECTS = [
    f"{when} {what}" for what in ("start", "end", "manifest") for when in ("before", "after")
]
INSIDE = ["half", "built", "before end", "sleep"]  # more often, for that is where it is decided
WHO = st.integers(0, 3)


class Makers(RuleBasedStateMachine):
    """Up to four at once who want a step, moved from point to point in any order. Each has a clock
    of its own, which may leap: whoever is not moved meanwhile has slept past staleness."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp()).resolve()
        self.watcher = Store(self.root)
        self.actors: list[Actor] = []
        self.manifest: bytes | None = None

    def _living(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.at != OVER]

    def _pick(self, who: int) -> Actor:
        living = self._living()
        return living[who % len(living)]

    def _run(self, actor: Actor, point: str) -> None:
        for _ in range(60):  # it may wait for another one and never come there
            if actor.at not in (point, OVER):
                actor.go()
                self.nothing_is_torn()

    @initialize(ready=st.integers(2, 3))
    def some_are_there(self, ready: int) -> None:
        for _ in range(ready):
            self.somebody_comes(failing=False, here=True)

    @precondition(lambda self: len(self.actors) < 8 and len(self._living()) < 4)
    @rule(failing=st.sampled_from([False, False, False, True]), here=st.booleans())
    def somebody_comes(self, failing: bool, here: bool) -> None:
        self.actors.append(Actor(self.root, "abcdefgh"[len(self.actors)], failing, here))

    @precondition(_living)
    @rule(who=WHO, points=st.integers(1, 4))
    def runs(self, who: int, points: int) -> None:
        actor = self._pick(who)
        for _ in range(points):
            if actor.at != OVER:
                actor.go()
                self.nothing_is_torn()

    @precondition(_living)
    @rule(who=WHO, point=st.sampled_from(3 * INSIDE + EFFECTS))
    def runs_up_to(self, who: int, point: str) -> None:
        self._run(self._pick(who), point)

    @precondition(_living)
    @rule(who=WHO, point=st.sampled_from(INSIDE))
    def waits_past_staleness_while_all_others_sleep(self, who: int, point: str) -> None:
        actor = self._pick(who)
        self._run(actor, "sleep")
        actor.now += 1e4
        self._run(actor, point)

    @rule(who=WHO, seconds=st.sampled_from([1.0, STALE_AFTER, 1e4]))
    def time_passes(self, who: int, seconds: float) -> None:
        if self._living():
            self._pick(who).now += seconds

    @precondition(_living)
    @rule(who=WHO)
    def beats(self, who: int) -> None:
        if lease := self._pick(who).lease:
            lease.beat()

    @precondition(_living)
    @rule(who=WHO, point=st.sampled_from(["half", "built", *EFFECTS]), dead=st.booleans())
    def dies_or_finds_the_disk_full(self, who: int, point: str, dead: bool) -> None:
        actor = self._pick(who)
        self._run(actor, point)
        if actor.at == point:
            actor.go(fault_points.Ended() if dead else full())

    @invariant()
    def nothing_is_torn(self) -> None:
        """What anybody sees is whole, one, and the same for ever."""
        path = self.root / STEP / "manifest.json"
        manifest = path.read_bytes() if path.exists() else None
        assert self.manifest in (None, manifest), "the manifest changed"
        self.manifest = manifest
        found = find(self.watcher, NAME, FINGERPRINT)
        assert (found is not None) == (manifest is not None)
        returned = [actor.made for actor in self.actors if actor.made]
        assert all(made == found for made in returned)
        if found:
            read_whole(found)

    @invariant()
    def at_most_one_generation_was_made_and_no_lost_one_counts(self) -> None:
        paths = self.root.glob(f"leases/{STEP}/*/end.json")
        ends = {int(path.parent.name): End.model_validate_json(path.read_bytes()) for path in paths}
        made = [generation for generation, end in ends.items() if end.how == "made"]
        assert len(made) <= 1
        assert not made or made == [max(ends)]
        folders = [path.name.split("-")[0] for path in self.root.glob(f"{STEP}/*-*")]
        assert len(folders) == len(set(folders)), "two wrote in one generation"
        if self.manifest:
            assert json.loads(self.manifest)["generation"] in made

    def teardown(self) -> None:
        try:
            self._everybody_returns()
        finally:
            for actor in self._living():
                actor.go(fault_points.Ended())
            shutil.rmtree(self.root)

    def _everybody_returns(self) -> None:
        """No more faults, and turns for all: nobody waits for ever, nor does one who comes now."""
        self.actors.append(Actor(self.root, "z"))
        for _ in range(2_000):
            for actor in self._living():
                if actor.lease:
                    actor.lease.beat()
                actor.go()
        waiting = [(actor.who, actor.at) for actor in self._living()]
        assert not waiting, f"they wait for ever: {waiting}"
        self.nothing_is_torn()
        self.at_most_one_generation_was_made_and_no_lost_one_counts()
        assert all(actor.made or actor.hurt for actor in self.actors)


def test_no_interleaving_of_makers_gives_two_manifests_a_torn_output_or_a_lost_wake_up() -> None:
    run_state_machine_as_test(
        Makers, settings=settings(max_examples=examples(20), stateful_step_count=30, deadline=None)
    )
