"""A whole lab in one process, for stories: sandbox, bot and a stub trainer, on one virtual clock.

People act through the sandbox (`lab.sandbox.comment("grace", 2, "/run")`); the bot hears of it by
signed deliveries and works until nothing is due (`lab.settle()`). Its life can end at any fault
point (`dies_at`), and `restart` begins the next one on the same store.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from bot.controller import catch_up
from bot.controller.reconciler import Reconciler
from bot.fake_github.world.climate import Climate
from bot.fake_github.world.sandbox import Sandbox, make_sandbox
from bot.fake_github.world.state import Clock, User
from bot.github import GitHub, Later
from bot.inbox import webhook
from bot.service import actions_job
from runner.lib import fault_points
from runner.publish.signing import Key
from runner.scheduler.cluster import Described
from runner.schema.record import Isolated
from runner.store.store import Store
from tests import in_process
from tests.sandbox.openapi import Recorder
from tests.stub_trainer import StubRay

Mode = Literal["server", "actions"]

ROOT = Path(__file__).parents[2]
SECRET = "a-secret-of-the-tests"
READING = 31  # seconds, that a plan must have stood for a bare `/run` to mean it
# A climate for all stories. What they say of a moment may fail then, and of the end may not:
# `REGATTA_CLIMATE=mild REGATTA_SEED=7 pytest tests/system/scenarios/test_story.py`.
CLIMATE, SEED = os.environ.get("REGATTA_CLIMATE", ""), int(os.environ.get("REGATTA_SEED", "1"))
BEHIND = [15.0] * 8  # seconds between looks; what comes late, or is tried again, has come by then
TOKENS = {"ada": "ada-token", "sam": "sam-token", "grace": "grace-token"}

HYPOTHESIS = "A tenfold warmer learning rate learns more in 16 steps."
PREDICTIONS = """\
- metric: eval/bpb
  arm: fast
  versus: slow
  expect: "< -0.05"
  confidence: 80 %
- metric: eval/bpb
  arm: fast
  expect: "1.0 ± 0.2"
  confidence: 0.6
"""
EXPERIMENT = """\
title: Does a warmer learning rate pay off in 16 steps?
preregistration: 1
data: {source: text.txt, tokenizer: byte}
model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, seq_len: 32}
train: {train_batch_size: 2, num_train_steps: 16, learning_rate: 0.003, lr_schedule: wsd, \
warmup: 0.1, decay: 0.2}
eval: {tokens: 64}
resources: {kind: cpu, count: 1}
seeds: [0, 1, 2]
arms:
  slow: {train: {learning_rate: 0.0003}}
  fast: {}
"""
TEXT = "".join(f"Line {n} of a small text to train on.\n" for n in range(400))


def form_body(hypothesis: str = HYPOTHESIS, predictions: str = PREDICTIONS) -> str:
    """An issue's body as the experiment form renders it."""
    fenced = f"```yaml\n{predictions}\n```" if predictions else "_No response_"
    return (
        f"### Hypothesis\n\n{hypothesis or '_No response_'}\n\n### Predictions\n\n{fenced}\n\n"
        "### Notes\n\n_No response_"
    )


class Lab:
    """Sandbox, bot and stub trainer."""

    def __init__(
        self,
        root: Path,
        trainer: StubRay | None = None,
        cluster: Described | None = None,
        mode: Mode = "server",
        isolation: Isolated = "",
    ) -> None:
        self.root = root
        self.mode = mode
        self.isolation: Isolated = isolation
        self.cluster = cluster
        self.clock = Clock(running=False)
        self.trainer = trainer or StubRay()
        files = {
            path.relative_to(ROOT).as_posix(): path.read_bytes()
            for path in (ROOT / ".github").rglob("*")
            if path.is_file()
        }
        self.undelivered: list[tuple[Mapping[str, str], bytes]] = []
        self.answers: list[int] = []
        self.sandbox: Sandbox = make_sandbox(
            root / "sandbox",
            files=files,
            bot_token="installation-token",
            persona_tokens=TOKENS,
            webhook_secret=SECRET,
            clock=self.clock,
            deliver=self.deliver,
        )
        self.climate: Climate | None = None
        self.sweep_every: timedelta | None = catch_up.EVERY if mode == "actions" else None
        self.records_branch = False  # each commit takes a few git commands of the sandbox's
        self.key: Key | None = None
        self.credentials: Callable[[], str] = lambda: "installation-token"
        self.bot: Reconciler | Jobs | None = None
        self.gate: webhook.Gate | Jobs | None = None

    # ── The bot's life ──

    def start(self) -> None:
        """Begin a life of the bot; GitHub then redelivers what nobody took."""
        if self.mode == "actions":
            self.bot = self.gate = Jobs(self)
            return
        bot = self.bot = self.reconciler()
        repository = self.sandbox.world.repository_id
        self.gate = webhook.Gate(self.store, SECRET, repository, bot.wake)
        again, self.undelivered = self.undelivered, []
        for headers, body in again:
            self.deliver(headers, body)

    def reconciler(self) -> Reconciler:
        """The bot's inside, as a process that has just begun has it."""
        store = Store(self.root / "store")
        github = GitHub(
            "regatta-lab/lab",
            self.credentials,
            api=f"{self.sandbox.url}/api/v3",
            seconds_between_writes=0,
            monotonic=self.monotonic,
            sleep=self.sleep,
        )
        self.store = store
        return Reconciler(
            store,
            github,
            self.trainer,
            cluster=self.cluster,
            isolation=self.isolation,
            sweep_every=self.sweep_every,
            records_branch=self.records_branch,
            key=self.key,
            monotonic=self.monotonic,
        )

    def set_climate(self, name: str, seed: int) -> Climate:
        """GitHub is late, limited and forgetful from the bot's next life on."""
        self.climate, self.sweep_every = self.sandbox.set_climate(name, seed), catch_up.EVERY
        self.die()
        return self.climate

    def _comes_later(self) -> bool:
        """Let time pass until the next late delivery, or until a sweep after a lost one."""
        if self.climate is None or self.bot is None:
            return False
        if late := self.sandbox.webhooks.late:
            self.sleep(max((min(at for at, _ in late) - self.clock.now()).total_seconds(), 0))
            self.sandbox.webhooks.catch_up()
            return True
        lost, self.climate.met["lost"] = self.climate.met["lost"], 0
        self.sleep(catch_up.EVERY.total_seconds() + 60 if lost else 0)
        return bool(lost)

    def die(self) -> None:
        """The process is gone; nothing is cleaned up."""
        self.bot = self.gate = None

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        """What the sandbox does with a webhook."""
        status = 0
        if self.gate is not None:
            try:
                status, _ = self.gate.receive(headers, body)
            except fault_points.Ended:
                self.die()
        if status // 100 != 2:
            self.undelivered.append((headers, body))
        self.answers.append(status)
        return status

    def settle(self, most: int = 400) -> None:
        """Let the bot work, and time pass, until nothing is due any more.

        A bot that dies on the way is started again.
        """
        missed = self.mode == "actions" and self.climate is not None
        for _ in range(10 * most if self.climate else most):
            try:
                if self.bot is None:
                    self.start()
                    continue
                wait = self.bot.run(300) if isinstance(self.bot, Jobs) else self.bot.work()
            except fault_points.Ended:
                self.die()
                continue
            except Later:  # GitHub does not answer who begins; it is begun again
                self.die()
                self.sleep(5)
                continue
            if wait is None:
                if self._comes_later():
                    continue
                if missed:  # what was not in the lists yet is in those of the next job by the clock
                    self.sleep(catch_up.EVERY.total_seconds())
                    missed = False
                    continue
                return
            self.sleep(max(wait, 0.01))
        raise AssertionError("the bot does not come to rest")

    def look(self, times: int = 5) -> None:
        """Let the bot look a few times, two seconds apart, however much is still due; in a climate,
        then for as long as GitHub can be behind."""
        for seconds in [2.0] * times + (BEHIND if self.climate else []):
            assert self.bot is not None
            self.bot.work()
            self.sleep(seconds)

    def monotonic(self) -> float:
        return self.clock.now().timestamp()

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if self.climate:
            self.sandbox.webhooks.catch_up()

    # ── What is visible ──

    def comments(self, number: int) -> list[str]:
        """The bot's comments on a thread."""
        issue = self.sandbox.issue(number)
        return [c.body for c in issue.comments if self.sandbox.is_app(c.user)]

    def last(self, number: int) -> str:
        """The bot's newest comment on a thread; in a climate, a status may come after a result."""
        comments = self.comments(number)
        return [c for c in comments if not (self.climate and c.startswith("🏁"))][-1]

    def labels(self, number: int) -> list[str]:
        return sorted(label.name for label in self.sandbox.issue(number).labels)

    def records(self, folder: str) -> dict[str, Any]:
        """Every record below `records/<folder>`, by path."""
        root = self.root / "store" / "records" / folder
        return {
            path.relative_to(root).as_posix(): json.loads(path.read_bytes())
            for path in sorted(root.rglob("*.json"))
        }

    # ── What people do ──

    def strangers(self, number: int) -> list[str]:
        """So many new accounts without a role; their logins."""
        world = self.sandbox.world
        made = [User(1000 + n, f"stranger{n}", f"Stranger {n}") for n in range(number)]
        world.users.update((one.login, one) for one in made)
        return [one.login for one in made]

    def preregister(self, body: str | None = None) -> int:
        """Ada opens an issue from the form."""
        body = form_body() if body is None else body
        issue = self.sandbox.open_issue("ada", "Experiment: warmer is better", body)
        self.settle()
        return issue.number

    def propose(
        self,
        declaration: str = EXPERIMENT,
        *,
        path: str = "experiments/warm/experiment.yaml",
        reading: float = READING,
    ) -> int:
        """Ada opens a pull request with a declaration and its text; then there is time to read."""
        files = {path: declaration.encode(), "experiments/warm/text.txt": TEXT.encode()}
        self.sandbox.commit("ada", "warm", files, "Declare an experiment")
        pull = self.sandbox.open_pull("ada", "Warmer learning rate", "Tests #1.", "warm")
        self.settle()
        self.clock.advance(reading)
        return pull.number

    def say(self, who: str, number: int, body: str) -> None:
        """Somebody comments when there was time to read what came before; the bot does what
        follows."""
        self.clock.advance(READING)
        self.sandbox.comment(who, number, body)
        self.settle()


class Jobs:
    """The bot in Actions mode, in the places of a reconciler and of a gate: each event is a job
    that begins with nothing but the store, and so is each time that the clock starts one."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._events: list[tuple[Mapping[str, str], bytes]] = []
        self._n = 0

    def receive(self, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """GitHub queues a job for an event that the workflow names."""
        if headers["X-GitHub-Event"] in ("issues", "issue_comment", "pull_request"):
            self._events.append((headers, body))
        return 202, "Queued."

    def work(self) -> float | None:
        """Run the jobs that wait, or the clock's if none does; when something is due next."""
        return self.run(may_take=0.0)

    def run(self, may_take: float) -> float | None:
        """Run the next job, for so many seconds. GitHub keeps the newest of those that wait."""
        events, self._events = self._events[-1:], []
        for headers, body in events or [({"X-GitHub-Event": "schedule"}, b"{}")]:
            self._keep(headers, body)
        ended = actions_job.work(
            self._lab.reconciler(),
            may_take=may_take,
            monotonic=self._lab.monotonic,
            sleep=self._lab.sleep,
        )
        return None if ended == "done" else 2.0

    def _keep(self, headers: Mapping[str, str], body: bytes) -> None:
        self._n += 1
        file = self._lab.root / "event.json"
        file.write_bytes(body)
        run = headers.get("X-GitHub-Delivery", f"clock{self._n}").replace("-", "")
        event = actions_job.event_of(
            {
                "GITHUB_EVENT_NAME": headers["X-GitHub-Event"],
                "GITHUB_EVENT_PATH": str(file),
                "GITHUB_RUN_ID": run,
            }
        )
        store = Store(self._lab.root / "store")
        actions_job.keep(store, event, self._lab.sandbox.world.repository_id)


@contextmanager
def a_lab(
    root: Path,
    trainer: StubRay | None = None,
    wrap: Callable[[Any], Any] = lambda app: app,
    cluster: Described | None = None,
    mode: Mode = "server",
    isolation: Isolated = "",
    serving: Callable[..., AbstractContextManager[str]] = in_process.running,
) -> Iterator[Lab]:
    """A lab whose sandbox answers for the length of the block, by `server.running` other processes,
    too.

    Every request of the bot and every answer to it is held against GitHub's description."""
    lab = Lab(root, trainer, cluster, mode, isolation)
    recorder = Recorder(bot=lambda who: who.startswith("Bearer"))
    with serving(lab.sandbox, wrap=lambda app: wrap(recorder(app))):
        lab.settle()
        if CLIMATE:
            lab.sleep(60)  # no replica is from before the lab began
            lab.set_climate(CLIMATE, SEED)
            lab.start()
        yield lab
    assert not recorder.complaints, "\n".join(recorder.complaints)
