"""What a power cut leaves: what was made is still there, and what was not is made by whoever asks
next. The disk here forgets all that was not synced, contents of files and names in folders, and the
power is cut before each sync in turn. Leases are not synced: of those it keeps nothing, parts or
all, as it likes."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.lib import fault_points
from runner.store import artifacts
from runner.store.artifacts import find, make
from runner.store.store import Store
from tests.runner.maker_process import FINGERPRINT, NAME, read_whole, text_of, write

OTHER = "e" * 64
MANY = 100  # more syncs than a maker has


class Forgetful:
    """A disk below `root` that has what was synced, and nothing else, once its power is cut."""

    def __init__(self, root: Path) -> None:
        self.root, self.syncs, self.cut_at, self.cut = root, 0, -1, False
        self._contents: dict[int, bytes] = {}  # by inode
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # folder: {name: (inode, folder)}

    def sync(self, descriptor: int) -> None:
        """In the place of `os.fsync`."""
        if self.cut:
            return
        if self.syncs == self.cut_at:
            self.cut_power()
            raise fault_points.Ended
        self.syncs += 1
        found = os.fstat(descriptor)
        if not stat.S_ISDIR(found.st_mode):
            self._contents[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
            return
        with os.scandir(descriptor) as entries:
            self._names[found.st_ino] = {x.name: (x.inode(), x.is_dir()) for x in entries}

    def cut_power(self) -> None:
        """What happens from now on leaves no trace."""
        self.cut = True
        if (leases := self.root / "leases").exists():
            shutil.copytree(leases, self.root.with_name("leases"))

    def left(self, into: Path, of_a_lease: Callable[[Path], bytes | None]) -> None:
        """Write what is left; of each file of a lease what `of_a_lease` says, None for nothing."""
        self._write(self.root.stat().st_ino, into)
        for path in self.root.with_name("leases").rglob("*.json"):
            place = into / path.relative_to(self.root.parent)
            place.unlink(missing_ok=True)
            if (kept := of_a_lease(path)) is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(kept)

    def _write(self, folder: int, into: Path) -> None:
        into.mkdir()
        for name, (inode, is_folder) in self._names.get(folder, {}).items():
            if is_folder:
                self._write(inode, into / name)
            else:
                (into / name).write_bytes(self._contents.get(inode, b""))


LEFT: dict[str, Callable[[Path], bytes | None]] = {
    "nothing": lambda _: None,
    "names": lambda _: b"",
    "halves": lambda x: x.read_bytes()[: x.stat().st_size // 2],
    "all but the last byte": lambda x: x.read_bytes()[:-1],
    "zeros": lambda x: bytes(x.stat().st_size),
    "all": Path.read_bytes,
    "the end without the start": lambda x: None if x.name == "start.json" else x.read_bytes(),
    "the start and half an end": lambda x: x.read_bytes()[: 40 if x.name == "end.json" else None],
}


def build(who: str) -> Callable[[Path], None]:
    return lambda folder: write(folder, text_of(who), lambda _: None)


def never(_: object) -> None:
    raise AssertionError("nobody builds here")


@pytest.fixture
def new_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Forgetful]:
    """Gives a disk of this name with a store."""

    def disk(name: str) -> Forgetful:
        disk = Forgetful(tmp_path.resolve() / name / "store")
        monkeypatch.setattr(os, "fsync", disk.sync)
        Store(disk.root)
        return disk

    return disk


def cut(disk: Forgetful, before: int) -> bool:
    """Whether the power went before that sync of a maker's; else it goes when all is made."""
    disk.cut_at = disk.syncs + before
    try:
        make(Store(disk.root), NAME, FINGERPRINT, build("a"), {})
    except fault_points.Ended:
        return True
    disk.cut_power()
    return False


@pytest.mark.parametrize("leases", LEFT)
def test_a_finished_output_survives_a_power_cut(
    new_disk: Callable[[str], Forgetful], leases: str
) -> None:
    disk = new_disk("a")
    assert not cut(disk, MANY)
    disk.left(after := disk.root.with_name("after"), LEFT[leases])
    made = make(Store(after), NAME, FINGERPRINT, never, {}, sleep=never)
    assert read_whole(made) == text_of("a")


@pytest.mark.parametrize("leases", LEFT)
def test_an_unfinished_output_is_made_again_after_a_power_cut(
    new_disk: Callable[[str], Forgetful], leases: str
) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 10 * seconds
        assert now[0] < 1000, "it waits for somebody who is dead"

    points = 0
    while cut(disk := new_disk(str(points)), points):
        disk.left(after := disk.root.with_name("after"), LEFT[leases])
        store, now[0] = Store(after), 0.0
        made = make(store, NAME, FINGERPRINT, build("b"), {}, monotonic=lambda: now[0], sleep=sleep)
        assert read_whole(made) in (text_of("a"), text_of("b"))
        assert find(store, NAME, FINGERPRINT) == made
        points += 1
    assert 8 < points < MANY


def test_a_generation_with_a_truncated_record_was_lost(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    lease = store.local(f"leases/steps/{NAME}/{FINGERPRINT[:16]}/1")
    lease.mkdir(parents=True)
    (lease / "start.json").write_bytes(b"")
    start, end = artifacts.newest(store, NAME, FINGERPRINT)
    assert (start and start.generation, end) == (1, artifacts.CUT_OFF)
    assert make(store, NAME, FINGERPRINT, build("a"), {}).manifest.generation == 2


def test_a_step_of_one_file_waits_for_the_disk_six_times(
    new_disk: Callable[[str], Forgetful],
) -> None:
    """For the file, its folder, the two around it, and the manifest with its name."""
    disk = new_disk("a")
    store = Store(disk.root)
    make(store, NAME, OTHER, lambda folder: (folder / "n").write_text("1"), {})
    before = disk.syncs
    make(store, NAME, FINGERPRINT, lambda folder: (folder / "n").write_text("1"), {})
    assert disk.syncs - before == 6
