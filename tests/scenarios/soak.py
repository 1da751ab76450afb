"""Many deliveries while the bot's process ends again and again: `python -m tests.scenarios.soak`.

People open issues and pull requests, push, chat, command, and deliveries come twice. At every 25th
effect (a record, a request that changes GitHub, a job) the process ends, before or after it as
the seed says, and the next one begins. In the end every key must have exactly one visible effect.
"""

import argparse
import collections
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from bot.controller import catch_up
from bot.fake_github.world.climate import CLIMATES
from runner.lib import fault_points
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, TEXT, Lab, a_lab, form_body
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_faults import PIXEL

KILL_EVERY = 25  # effects
PULLS = 12  # most that are open; what is written goes to one of them
BATCH = 4  # deliveries between two moments at which everything has come to rest
MARKER = re.compile(r"<!-- regatta: (\S+) -->\Z")


class Killer:
    """Ends the process at every so manieth effect."""

    def __init__(self, seed: int, every: int) -> None:
        self._random = random.Random(seed)
        self._every = every
        self._reached = 0
        self._next = every
        self._after = True
        self.effects = 0
        self.kills = 0
        self.quiet = False

    def __call__(self, point: str) -> None:
        name, _, when = point.rpartition(".")
        self.effects += when == "before"
        if self.quiet or name.startswith("store.store"):
            return
        if self.effects >= self._next and (when == "after") == self._after:
            self._next = self.effects + self._every
            self._after = self._random.random() < 0.5
            self.kills += 1
            raise fault_points.Ended(point)


def soak(
    deliveries: int, seed: int = 1, kill_every: int = KILL_EVERY, climate: str = ""
) -> dict[str, Any]:
    """Soak; figures of it. Raises AssertionError where something is there twice, or not at all.
    In a `climate`, GitHub is late, limited and forgetful until shortly before the end."""
    killer = Killer(seed, kill_every)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as there,
        mock.patch.object(charts, "png", return_value=PIXEL),
        fault_points.hooked(killer),
        a_lab(Path(there), StubRay(pace=48)) as lab,
    ):
        lab.sweep_every = catch_up.EVERY
        lab.die()
        if climate:
            lab.set_climate(climate, seed)
        waits = _live(lab, deliveries, random.Random(seed))
        killer.quiet = True
        lab.settle(10**6)
        lab.die()  # the next life takes stock
        lab.clock.advance(120)
        lab.settle(10**6)
        figures = _check(lab) | waits
        figures |= {"met": dict(lab.climate.met)} if lab.climate else {}
    seconds = time.monotonic() - began
    return figures | {
        "effects": killer.effects,
        "kills": killer.kills,
        "seconds": round(seconds, 1),
    }


def _live(lab: Lab, deliveries: int, chance: random.Random) -> dict[str, Any]:
    """What people do. Returns how long, in virtual seconds, they waited for rest."""
    pulls: list[int] = []
    waits: list[float] = []
    sent = lab.sandbox.webhooks.deliveries
    while len(sent) < deliveries:
        for _ in range(BATCH):
            lab.clock.advance(1)
            _do_something(lab, pulls, chance)
            if chance.random() < 0.1:
                lab.sandbox.webhooks.redeliver(chance.choice(sent))
        began = lab.clock.now()
        lab.settle(10**6)
        waits.append((lab.clock.now() - began).total_seconds())
        lab.clock.advance(31)
    ranked = sorted(waits)
    return {
        "median_wait": ranked[len(ranked) // 2],
        "wait_of_95_percent": ranked[len(ranked) * 95 // 100],
        "longest_wait": ranked[-1],
    }


def _do_something(lab: Lab, pulls: list[int], chance: random.Random) -> None:
    what = chance.random()
    if len(pulls) < 2 or (len(pulls) < PULLS and what < 0.05):
        branch = f"warm-{len(pulls)}"
        if not pulls:
            lab.sandbox.open_issue("ada", "Experiment: warmer is better", form_body())
        lab.sandbox.commit("ada", branch, _files(len(pulls)), "Declare an experiment")
        pulls.append(lab.sandbox.open_pull("ada", "Warmer", "Tests #1.", branch).number)
        return
    number = chance.choice(pulls)
    if what < 0.15:
        branch = f"warm-{pulls.index(number)}"
        lab.sandbox.commit("ada", branch, _files(chance.randrange(10**6)), "Another")
    elif what < 0.3:
        lab.sandbox.comment("grace", number, "/run")
    else:
        words = ["/help", "/run", "/status", "/hepl", "Nice.", "/help\n\n/status", "`/run`"]
        lab.sandbox.comment(chance.choice(["sam", "ada"]), number, chance.choice(words))


def _files(n: int) -> dict[str, bytes]:
    rate = f"0.00{3 + n % 5}{n % 1000:03d},"
    return {
        "experiments/warm/experiment.yaml": EXPERIMENT.replace("0.003,", rate).encode(),
        "experiments/warm/text.txt": TEXT.encode(),
    }


def _check(lab: Lab) -> dict[str, Any]:
    """Every key has one visible effect, and every delivery and execution has come to its end."""
    comments, checks = 0, 0
    made = {check.id: check for check in lab.sandbox.world.checks.values()}
    live = collections.Counter(
        check.external_id for check in made.values() if check.title != "Posted twice"
    )
    for number in lab.sandbox.world.issues:
        keys = collections.Counter(
            found[1] for body in lab.comments(number) if (found := MARKER.search(body))
        )
        said = lab.records(f"said/{lab.sandbox.world.repository_id}/{number}")
        for path, claim in said.items():
            key, _, name = path.rpartition("/")
            if name != "claim.json":
                continue
            done = said[f"{key}/done.json"]
            assert "note" not in done, f"{number}/{key}: {done}"
            if claim["kind"] == "comment":
                comments += 1
                assert keys.pop(key) == 1, f"{number}/{key} is there {keys[key]} times"
            else:
                checks += 1
                assert live[f"{number}.{key}"] == 1, f"the check {number}.{key}"
        assert not keys, f"thread {number} shows what nobody recorded: {keys}"
    for number, names in lab.climate.labelled.items() if lab.climate else ():
        assert names <= set(lab.labels(number)), f"labels of others at {number}"
    assert lab.records("inbox") == {}
    assert lab.records("aside") == {}
    assert lab.records("restored") == {}
    executions = {path.partition("/")[0] for path in lab.records("executions")}
    ended = [path for path in lab.records("executions") if path.endswith("/result.json")]
    assert len(ended) == len(executions)
    first = collections.Counter(
        folder.partition("-")[0] for folder in lab.trainer.submissions if ".t1-" in folder
    )
    assert set(first.values()) <= {1}, "an execution was launched twice"
    return {
        "deliveries": len(lab.sandbox.webhooks.deliveries),
        "handled": len(lab.records("handled")),
        "comments": comments,
        "checks": checks,
        "executions": len(executions),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--climate", choices=CLIMATES, default="")
    print(soak(**vars(parser.parse_args())))
