"""What the tests of reports do to a lab and its GitHub."""

import json
from collections.abc import Callable
from typing import Any

from bot.fake_github.world import climate
from bot.fake_github.world.faults import Fault, Faults
from tests.scenarios.lab import EXPERIMENT, READING, TEXT, Lab, form_body

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0"
    "000003010100c9fe92ef0000000049454e44ae426082"
)
FILES = {
    "experiments/warm/experiment.yaml": EXPERIMENT.encode(),
    "experiments/warm/text.txt": TEXT.encode(),
}
BLOCKED = climate.BLOCKED
PULL = r"/pulls/2$"


def turn(lab: Lab, seconds: float, step: float = 1) -> None:
    """Let the bot work for a while, whatever is left to do."""
    for _ in range(int(seconds / step)):
        if lab.bot is None:
            lab.start()
        assert lab.bot
        lab.bot.work()
        lab.sleep(step)


def fail(
    lab: Lab,
    method: str,
    path: str,
    status: int,
    message: str = "",
    *,
    times: int = 10**6,
    headers: dict[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
    kind: str = "status_before",
) -> None:
    """Let the next requests of this kind fail; without a message, with a page of HTML."""
    body = json.dumps({"message": message} | ({"errors": errors} if errors else {}))
    body = body if message else climate.UNICORN
    fault = Fault(kind, method, path, times, status, body, headers or {})  # type: ignore[arg-type]
    lab.sandbox.faults.add(fault)


def mend(lab: Lab) -> None:
    """GitHub is well again."""
    lab.sandbox.faults.clear()


def open_issue(lab: Lab) -> None:
    """Ada opens an issue from the form, and nobody waits for the bot."""
    lab.sandbox.open_issue("ada", "Experiment: warmer is better", form_body())


def open_pull(lab: Lab, files: dict[str, bytes] | None = None) -> str:
    """Ada opens a pull request, and nobody waits for the bot. Returns its head."""
    head = lab.sandbox.commit("ada", "warm", {**FILES, **(files or {})}, "Declare an experiment")
    lab.sandbox.open_pull("ada", "Warmer learning rate", "Tests #1.", "warm")
    return head


def push(lab: Lab, rate: str = "0.004") -> str:
    """Ada pushes a correction. Returns the new head."""
    lab.clock.advance(5)
    other = EXPERIMENT.replace("0.003,", f"{rate},").encode()
    return lab.sandbox.commit("ada", "warm", {"experiments/warm/experiment.yaml": other}, "Other")


def say(lab: Lab, who: str, body: str, number: int = 2) -> int:
    """Somebody comments when there was time to read, and nobody waits for the bot."""
    lab.clock.advance(READING)
    return lab.sandbox.comment(who, number, body).id


def begin(lab: Lab) -> None:
    """Grace approves the plan, and its run begins."""
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    say(lab, "grace", "/run")
    turn(lab, 10)


def count(lab: Lab, words: str, number: int = 2) -> int:
    """How many of the bot's comments on a thread have these words."""
    return sum(words in body for body in lab.comments(number))


def results(lab: Lab) -> int:
    return count(lab, "<summary>Receipt</summary>")


def is_complete(lab: Lab) -> bool:
    """Whether all that a finished run posts is there, once."""
    posted = results(lab), count(lab, "🏁 This execution has ended"), count(lab, "erdict", 1)
    checks = {check.name: check.conclusion for check in lab.sandbox.world.checks.values()}
    ends = set(checks.values()) == {"success"} and len(checks) == 2
    return posted == (1, 1, 1) and ends and lab.labels(1) == ["experiment: done"]


def failures(lab: Lab) -> list[str]:
    """What was given up."""
    notes = [str(said.get("note", "")) for said in lab.records("said").values()]
    return [note for note in notes if note.startswith("failed")]


def plans(lab: Lab) -> list[str]:
    """The commits of all plans."""
    return [plan["commit"] for plan in lab.records("plans").values()]


def checks(lab: Lab) -> list[tuple[str, str | None]]:
    """Each check run's name and conclusion."""
    return [(each.name, each.conclusion) for each in lab.sandbox.world.checks.values()]


def writes(lab: Lab, since: int = 0) -> int:
    """The writes that reached GitHub since so many requests."""
    return sum(each.method != "GET" for each in list(lab.sandbox.requests)[since:])


class Changed(Faults):
    """Faults that may do something to the world, between two requests."""

    def __init__(self, do: Callable[[str, str], Any]) -> None:
        super().__init__()
        self.do = do

    def take(self, method: str, path: str) -> Fault | None:
        self.do(method, path)
        return super().take(method, path)
