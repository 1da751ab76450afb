"""GitHub breaks in every way it knows, and the thread ends as it would have without that."""

import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.fake_github.world.faults import Fault, Faults
from bot.model.thread import ThreadId
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, TEXT, Lab, a_lab, form_body
from tests.scenarios.visible import visible
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_faults import PIXEL

WRITES = ("POST", "PATCH", "PUT", "DELETE")
SLOW = '{"message": "You have exceeded a secondary rate limit."}'


class Storm(Faults):
    """Some of the requests, by chance, meet one of these faults; a write or any, as it says."""

    def __init__(self, seed: int, *kinds: tuple[float, Callable[[], Fault], bool]) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.kinds = kinds
        self.blows = True
        self.met: list[str] = []

    def take(self, method: str, path: str) -> Fault | None:
        for share, make, writes in self.kinds if self.blows else ():
            fault = make()
            fits = method in WRITES if writes else fault.matches(method, path)
            if fits and self.random.random() < share:
                self.met.append(fault.kind)
                return fault
        return None


class Tokens:
    """An App's credentials, whose tokens the sandbox may stop taking."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.n = lab, 0

    def __call__(self) -> str:
        return f"installation-token{self.n or ''}"

    def renew(self, token: str) -> None:
        if token == self():
            self.n += 1
            self.lab.sandbox.world.tokens[self()] = self.lab.sandbox.world.bot


def tell(storm: Storm | None = None) -> dict[str, Any]:
    """The story of an experiment; what is visible after the storm and one more look."""
    with tempfile.TemporaryDirectory() as there, pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "png", lambda _: PIXEL)
        with a_lab(Path(there), StubRay(pace=48)) as lab:
            lab.credentials = Tokens(lab)
            lab.die()
            lab.settle()
            if storm:
                lab.sandbox.faults = storm
            lab.sandbox.open_issue("ada", "Experiment: warmer is better", form_body())
            lab.settle(4000)
            files = {
                "experiments/warm/experiment.yaml": EXPERIMENT.encode(),
                "experiments/warm/text.txt": TEXT.encode(),
            }
            lab.sandbox.commit("ada", "warm", files, "Declare an experiment")
            lab.sandbox.open_pull("ada", "Warmer learning rate", "Tests #1.", "warm")
            lab.settle(4000)
            for who, body in (("sam", "/run"), ("sam", "/status"), ("grace", "/run")):
                lab.clock.advance(61)
                lab.sandbox.comment(who, 2, body)
                lab.settle(4000)
            if storm:
                storm.blows = False
            lab.clock.advance(61)
            assert lab.bot
            for number in (1, 2):
                lab.bot.wake(ThreadId(lab.sandbox.world.repository_id, number))
            lab.settle()
            return visible(lab)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    seen = tell()
    assert len(seen["threads"][2]["comments"]) >= 4
    return seen


def answered(kind: str, *statuses: int) -> Callable[[], Fault]:
    in_turn = itertools.cycle(statuses)
    return lambda: Fault(kind, "*", ".*", status=next(in_turn))


def limited() -> Fault:
    return Fault("status_before", "*", ".*", status=403, body=SLOW, headers={"retry-after": "7"})


STALE = (0.7, lambda: Fault("stale", "GET", r"/comments$|/check-runs$", seconds=25), False)
STORMS: dict[str, list[tuple[float, Callable[[], Fault], bool]]] = {
    "500 and 502 before": [(0.3, answered("status_before", 500, 502), False)],
    "500 and 502 after": [(0.3, answered("status_after", 500, 502), True)],
    "dropped before": [(0.3, lambda: Fault("drop_before"), False)],
    "dropped after": [(0.3, lambda: Fault("drop_after"), True)],
    "effects 10 s later": [(0.3, lambda: Fault("later", seconds=10), True)],
    "truncated bodies": [(0.3, lambda: Fault("cut"), False)],
    "403 with retry-after": [(0.2, limited, False)],
    "expired tokens": [(0.1, lambda: Fault("expired"), False)],
    "stale lists, lost answers": [STALE, (0.4, answered("status_after", 502), True)],
    "all together": [
        STALE,
        (0.1, lambda: Fault("later", seconds=10), True),
        (0.1, lambda: Fault("cut"), False),
        (0.1, answered("status_after", 502), True),
        (0.1, answered("status_before", 500), False),
        (0.05, limited, False),
        (0.05, lambda: Fault("expired"), False),
    ],
}


@pytest.mark.parametrize("name", STORMS)
def test_a_thread_ends_the_same_under_any_github_fault(
    name: str, undisturbed: dict[str, Any]
) -> None:
    storm = Storm(5, *STORMS[name])
    assert tell(storm) == undisturbed
    kinds = {make().kind for _, make, _ in STORMS[name]}
    assert len(kinds & set(storm.met)) >= min(len(kinds), 5)
