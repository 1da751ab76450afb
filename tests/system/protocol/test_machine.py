"""The same protocol with the real bot, the real store and the sandbox: chance decides.

The model of `world` could be wrong about the bot. Here nothing is modelled: people act in the
sandbox, deliveries come twice, the bot dies at its effects, and what it hands to Ray is judged by
what was true at that moment.
"""

import contextlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from runner.lib import fault_points
from tests.scenarios.lab import EXPERIMENT, Lab, a_lab
from tests.stub_trainer import StubRay

SETTLE = 30
FASTER = EXPERIMENT.replace("0.003,", "0.004,")
MARK = re.compile(r"<!-- regatta: (plan\.\d+) -->\s*$")

launches: list[str] = []  # of all stories that were told


class Ray(StubRay):
    """A trainer that tells of each attempt before it takes it."""

    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__(pace=4)
        self.told = told

    def submit(self, folder: str, *rest: Any) -> None:
        if folder not in self.submissions:
            self.told(folder)
        super().submit(folder, *rest)


class Protocol(RuleBasedStateMachine):
    """One pull request, of which Ada is the author and Grace the maintainer."""

    def __init__(self) -> None:
        super().__init__()
        self.open = contextlib.ExitStack()
        self.broken: list[str] = []
        self.ray = Ray(self.judged)
        self.fuse = 0  # effects until the bot dies; 0: it does not
        self.open.enter_context(fault_points.hooked(self.effect))
        root = Path(self.open.enter_context(tempfile.TemporaryDirectory()))
        self.lab: Lab = self.open.enter_context(a_lab(root, self.ray))
        self.meant: dict[int, str] = {}  # the commit that a comment can have meant
        self.moved: list[datetime] = []
        self.commits: list[str] = []

    @initialize(looks=st.integers(0, 20))
    def propose(self, looks: int) -> None:
        """There is a pull request, and what Grace said of its plan is on its way."""
        self.lab.preregister()
        self.pull = self.lab.propose()
        self.lab.sandbox.create_ref("ada", "refs/heads/release", self.thread["base"])
        self.commits = [self.thread["head"]]
        self.run("code", 40)
        for _ in range(looks):
            self.look()

    # ── What happens ──

    @rule()
    def push(self) -> None:
        if len(self.commits) > 1:
            self.move(self.commits[1])
            return
        files = {"experiments/warm/experiment.yaml": FASTER.encode()}
        self.moved.append(self.lab.clock.now())
        self.lab.sandbox.commit("ada", "warm", files, "Another rate")
        self.commits.append(self.thread["head"])

    @rule()
    def back(self) -> None:
        self.move(self.commits[0])

    def move(self, commit: str) -> None:
        if self.thread["head"] != commit:
            self.moved.append(self.lab.clock.now())
            self.lab.sandbox.update_ref("ada", "refs/heads/warm", commit, force=True)

    @rule(base=st.sampled_from(["main", "release"]))
    def retarget(self, base: str) -> None:
        if self.thread["base_ref"] != base:
            self.lab.sandbox.retarget("ada", self.pull, base)

    @rule(role=st.sampled_from(["maintain", "write"]))
    def role(self, role: Any) -> None:
        self.lab.sandbox.set_role("grace", role)

    @rule(
        form=st.sampled_from(["bare", "code", "older code", "head", "other"]),
        wait=st.sampled_from([0, 1, 40]),
    )
    def run(self, form: str, wait: int) -> None:
        """Grace approves a plan in some way."""
        self.lab.clock.advance(wait)
        plans = self.plans()
        shown = self.shown()
        known = [plan for plan in plans if f"plan.{plan['n']}" in shown]
        body, meant = "/run", ""
        if form == "bare" and shown:
            newest = max(shown, key=lambda key: shown[key])
            commit = next(plan["commit"] for plan in plans if f"plan.{plan['n']}" == newest)
            still = all(at < shown[newest] for at in self.moved) and commit == self.thread["head"]
            settled = (self.lab.clock.now() - shown[newest]).total_seconds() >= SETTLE
            meant = commit if still and settled else ""
        elif "code" in form and known:
            plan = known[-1 if form == "code" else 0]
            body, meant = f"/run {plan['code']}", plan["commit"]
        elif form in ("head", "other"):
            meant = self.thread["head"] if form == "head" else self.commits[-1]
            body = f"/run {meant}"
        comment = self.lab.sandbox.comment("grace", self.pull, body)
        self.meant[comment.id] = meant

    @rule(back=st.integers(1, 4))
    def again(self, back: int) -> None:
        """GitHub delivers something a second time, under its old id."""
        sent = self.lab.sandbox.webhooks.deliveries
        self.lab.sandbox.webhooks.redeliver(sent[-min(back, len(sent))])

    @rule(fuse=st.integers(1, 12))
    def death(self, fuse: int) -> None:
        """The bot is to die at one of its next effects."""
        self.fuse = fuse

    @rule()
    def look(self) -> None:
        """The bot looks once at what is due."""
        try:
            if self.lab.bot is None:
                self.lab.start()
            elif self.lab.bot.work() is not None:
                self.lab.sleep(1)
        except fault_points.Ended:
            self.lab.die()

    @rule()
    def settle(self) -> None:
        self.lab.settle()

    def effect(self, point: str) -> None:
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise fault_points.Ended(point)

    # ── What is true ──

    @property
    def thread(self) -> dict[str, str]:
        """The pull request now."""
        found = self.lab.sandbox.pull(self.pull).pull
        assert found is not None
        head = self.lab.sandbox.world.git.resolve("warm")
        base = self.lab.sandbox.world.git.resolve("main")
        return {"head": str(head), "base": str(base), "base_ref": found.base}

    def plans(self) -> list[dict[str, Any]]:
        found = self.lab.records("plans").values()
        return sorted(found, key=lambda plan: plan["n"])

    def shown(self) -> dict[str, datetime]:
        """When each plan's comment was made."""
        comments = self.lab.sandbox.issue(self.pull).comments
        return {
            match[1]: comment.created_at
            for comment in comments
            if self.lab.sandbox.is_app(comment.user) and (match := MARK.search(comment.body))
        }

    @invariant()
    def nothing_is_broken(self) -> None:
        assert not self.broken

    def judged(self, folder: str) -> None:
        """Keep what is wrong: the bot would take an error here for trouble of its own."""
        try:
            self.judge(folder)
        except Exception as error:
            self.broken.append(f"{folder}: {type(error).__name__}: {error}")

    def judge(self, folder: str) -> None:
        """The bot hands an attempt to Ray: whether it may."""
        execution, _, attempt = folder.partition(".")
        origin = self.lab.records("executions")[f"{execution}/execution.json"]["origin"]
        command = origin["approval"].rpartition("/")[2]
        approval = self.lab.records("approvals")[f"700001/{self.pull}/{command}.json"]
        plan = next(plan for plan in self.plans() if plan["n"] == origin["plan"])
        assert approval["approved"]
        assert approval["by"]["login"] == "grace"
        assert self.meant[int(command.partition("-")[0])] == origin["commit"] == plan["commit"]
        spec = Path(self.lab.root / "store" / "work" / folder / "spec.json")
        assert json.loads(spec.read_bytes())["plan"]["fingerprint"] == plan["plan"]["fingerprint"]
        live = [job for job in self.ray.jobs if job.startswith(f"{execution}.")]
        assert all(self.ray.jobs[job].status not in ("pending", "running") for job in live)
        if attempt.startswith("t1-"):
            assert self.lab.sandbox.user("grace").role == "maintain"
            assert self.thread["head"] == origin["commit"]
            assert self.thread["base_ref"] == plan["base_ref"]

    def teardown(self) -> None:
        """In the end the bot rests, and each command has one answer."""
        try:
            if hasattr(self, "pull"):
                self.fuse = 0
                self.lab.settle(2000)
                for comment in self.lab.sandbox.issue(self.pull).comments:
                    if comment.id in self.meant:
                        given = [reaction.content for reaction in comment.reactions]
                        assert sorted(set(given) - {"eyes"}) in (["rocket"], ["confused"])
                bodies = self.lab.comments(self.pull)
                marks = Counter(match[1] for body in bodies if (match := MARK.search(body)))
                assert set(marks.values()) <= {1}
                assert not self.broken
        finally:
            self.open.close()
            launches.extend(self.ray.submissions)


@pytest.mark.parametrize(
    ("examples", "steps"),
    [(5, 10), pytest.param(150, 25, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_the_bot_keeps_the_protocol_whatever_chance_does(examples: int, steps: int) -> None:
    launches.clear()
    run_state_machine_as_test(
        Protocol,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{examples} stories, {len(launches)} launches")
    assert launches
