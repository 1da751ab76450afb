"""The bot may die before or after any effect, and the lab ends as if it had not."""

import collections
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from runner.lib import fault_points
from runner.publish import charts
from tests import conftest
from tests.scenarios.lab import a_lab
from tests.scenarios.visible import visible
from tests.stub_trainer import StubRay

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0"
    "000003010100c9fe92ef0000000049454e44ae426082"
)
FEWEST_POINTS = 100


Point = tuple[str, int]  # and at which reach of it


class Dies:
    """A hook that notes points, and ends the bot's life at one of them."""

    def __init__(self, at: Point | None) -> None:
        self.at = at
        self.folder = Path()
        self.counts: collections.Counter[str] = collections.Counter()
        self.points: list[tuple[Point, object]] = []  # each with what the folder held
        self.died = False

    def __call__(self, name: str) -> None:
        self.counts[name] += 1
        point = name, self.counts[name]
        if self.at is None:
            self.points.append((point, written(self.folder)))
        if not self.died and self.at == point:
            self.died = True
            raise fault_points.Ended(name)

    def moments(self) -> list[Point]:
        """One point of each moment: from the end of an effect to the begin of the next one is the
        same moment if nothing was written between."""
        found, before = [], None
        for (name, n), held in self.points:
            if not (name.endswith(".before") and before == held):
                found.append((name, n))
            before = held if name.endswith(".after") else None
        return found


def written(folder: Path) -> object:
    """What the folder holds, up to when each file was written."""
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def tell(at: Point | None) -> tuple[dict[str, Any], Dies]:
    """The story, with one death at `at`; what is visible in the end."""
    dies = Dies(at)
    with tempfile.TemporaryDirectory() as there:
        dies.folder = Path(there)
        trainer = StubRay(pace=48)
        with pytest.MonkeyPatch.context() as patch:
            # Drawing takes a second and is no effect.
            patch.setattr(charts, "png", lambda _: PIXEL)
            with fault_points.hooked(dies), a_lab(Path(there), trainer) as lab:
                issue = lab.preregister()
                pull = lab.propose()
                lab.say("sam", pull, "/run")
                lab.say("grace", pull, "/run")
                lab.clock.advance(60)
                lab.settle()
                assert lab.labels(issue) == ["experiment: done"]
                return visible(lab), dies


def tell_safely(at: Point) -> tuple[Point, bool, dict[str, Any] | str]:
    assert os.fsync is conftest.no_sync, "also in this process"
    try:
        seen, dies = tell(at)
    except Exception as error:
        return at, True, f"{type(error).__name__}: {error}"
    return at, dies.died, seen


@pytest.mark.long
@pytest.mark.timeout(1800)  # hundreds of stories, on all cores
@pytest.mark.parametrize("third", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_a_death_at_any_point_of_the_story_changes_nothing_in_the_end(third: int) -> None:
    """Of all points, every third by day and the others each night."""
    undisturbed, quiet = tell(None)
    points = quiet.moments()
    assert len(quiet.points) >= FEWEST_POINTS
    names = {name.rpartition(".")[0] for name, _ in points}
    assert {"github.create_comment", "github.create_check", "ray.submit", "store.said"} <= names
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        endings = pool.map(tell_safely, points[third::3], chunksize=4)
    print(f"{len(points)} points of {len(names)} kinds of effect")
    for at, died, seen in endings:
        assert died, f"{at} was never reached"
        assert seen == undisturbed, f"after a death at {at}"
