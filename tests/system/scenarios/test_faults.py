"""The bot may die before or after any effect, and the lab ends as if it had not."""

import collections
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import pytest

from runner.lib import fault_points
from runner.publish import charts
from tests.scenarios.lab import a_lab
from tests.scenarios.visible import visible
from tests.stub_trainer import StubRay

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0"
    "000003010100c9fe92ef0000000049454e44ae426082"
)
FEWEST_POINTS = 100


class Dies:
    """A hook that counts points, and ends the bot's life at the nth reach of one of them."""

    def __init__(self, at: tuple[str, int] | None) -> None:
        self.at = at
        self.counts: collections.Counter[str] = collections.Counter()
        self.died = False

    def __call__(self, point: str) -> None:
        self.counts[point] += 1
        if not self.died and self.at == (point, self.counts[point]):
            self.died = True
            raise fault_points.Ended(point)


def tell(at: tuple[str, int] | None) -> tuple[dict[str, Any], Dies]:
    """The story, with one death at `at`; what is visible in the end."""
    dies = Dies(at)
    with tempfile.TemporaryDirectory() as there:
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


def tell_safely(at: tuple[str, int]) -> tuple[tuple[str, int], bool, dict[str, Any] | str]:
    try:
        seen, dies = tell(at)
    except Exception as error:
        return at, True, f"{type(error).__name__}: {error}"
    return at, dies.died, seen


@pytest.mark.long
@pytest.mark.timeout(1800)  # hundreds of stories, on all cores
def test_a_death_at_any_point_of_the_story_changes_nothing_in_the_end() -> None:
    undisturbed, quiet = tell(None)
    points = [(name, n + 1) for name, count in quiet.counts.items() for n in range(count)]
    assert len(points) >= FEWEST_POINTS
    names = {name.rpartition(".")[0] for name, _ in points}
    assert {"github.create_comment", "github.create_check", "ray.submit", "store.said"} <= names
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        endings = pool.map(tell_safely, points, chunksize=4)
    print(f"{len(points)} points of {len(names)} kinds of effect")
    for at, died, seen in endings:
        assert died, f"{at} was never reached"
        assert seen == undisturbed, f"after a death at {at}"
