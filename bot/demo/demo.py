"""`regatta demo`: the lab's whole story with real parts, shown in the terminal as it happens.

The supervisor owns the children (sandbox, Ray, bot; `bot.demo.stage`) and plays the people through
the sandbox's REST API. It observes the bot where people would: in threads, labels and checks.
"""

import json
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import yaml
from rich.console import Console
from rich.text import Text

from bot.demo.stage import Lab, Missed, Story, child, surroundings, up
from runner.cli import terminal
from runner.execution import effects
from runner.execution.progress import progress
from runner.execution.ray_jobs import RayError
from runner.history import provenance
from runner.isolation import bubblewrap
from runner.schema import record
from runner.store.leases import LeaseWatch
from runner.store.store import Store

STEPS = "experiments/wide-or-deep"
EXPERIMENT = "experiments/warm-learning-rate/experiment.yaml"
APPROVED = "· approved by grace"  # in the status comment of an execution
BEGUN = ("experiment: running", "experiment: done")
TRAINING_MAY_TAKE = 600.0
# What the models write and can do, after they are trained.
MORE = """\
samples: {prompts: ["def ", "import "], tokens: 32, temperature: 0.7}
benchmarks: {tasks: [lexical-choice], items: 50}
"""
HYPOTHESIS = (
    "In 16 steps, a model of 0.9 million parameters has hardly started to learn. So a learning "
    "rate that is ten times higher should reach a lower loss."
)
PREDICTIONS = """\
- metric: eval/bpb
  arm: fast
  versus: slow
  expect: "< -0.05"
  confidence: 80 %
- metric: eval/bpb
  arm: fast
  expect: "< 2.0"
  confidence: 30 %"""


def play(root: Path, *, once: bool, report: Path | None, port: int) -> int:
    """Play the story. Returns the exit code: 0, or 1 if a beat was missed."""
    if report:
        report.open("a").close()  # it can be written: said now, and not after the story
    console = Console(highlight=False)
    story = Story(console)
    missed: str | None = None
    code = 1
    with ExitStack() as stack:
        _end_at_signals(console)
        scratch = tempfile.TemporaryDirectory(prefix="regatta-demo-", ignore_cleanup_errors=True)
        home = Path(stack.enter_context(scratch))
        try:
            lab = up(stack, home, port, story)
            _tell(lab, root, story)
        except (Missed, RayError, httpx.HTTPError, OSError) as error:
            missed = str(error) or type(error).__name__
            console.print(Text(f"✗ {missed}", style="bold red"), soft_wrap=True)
            _show_logs(console, home)
        except Stopped as stopped:
            missed, code = "interrupted", 128 + stopped.number
        if report:
            report.write_text(json.dumps(story.report(missed), indent=2) + "\n")
        if not missed and not once:
            _stay(console, lab)
    return code if missed else 0


class Stopped(BaseException):
    """Somebody wants the demo to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _end_at_signals(console: Console) -> None:
    """Let Ctrl-C and SIGTERM end the demo in order, and say so at once. A shell that starts the
    demo with `&` ignores Ctrl-C for it, so the handlers are set here."""

    def end(number: int, _: object) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)  # ending takes some seconds, and must not be cut off
        console.print("\nEnding … (some seconds)", style="dim")
        raise Stopped(number)

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, end)


# ── The story ────────────────────────────────────────────────────────────────────────────────


def _tell(lab: Lab, root: Path, story: Story) -> None:
    story.console.print(
        "\n[bold]Regatta[/bold]: an open lab in a box. Everything here runs on this machine.\n"
    )
    story.beat("The sandbox, the bot and a local Ray are running", lab.url())

    declared = (root / EXPERIMENT).read_text()
    title = _title(declared)
    issue = lab.ask("ada", "POST", "/issues", {"title": title, "body": _form()})["number"]
    story.wait(
        "Ada opens an issue with her predictions; the bot seals them",
        lambda: lab.said(issue, "### Sealed") and lab.label(issue) == "experiment: wishlist",
    )
    story.beat("The bot has sealed Ada's predictions", lab.said(issue, "### Sealed"))

    first, _, rest = declared.partition("\n")
    declaration = f"{first}\npreregistration: {issue}\n{rest}{MORE}"
    words = f"Tests the predictions of #{issue}."
    pull, head = _propose(lab, title, words, "warmer-start", {EXPERIMENT: declaration})
    story.wait(
        "Ada declares the experiment in a pull request; the bot makes a plan and runs nothing",
        lambda: (
            lab.said(pull, "### Plan 1")
            and lab.check(head, "regatta / plan")
            and lab.label(issue) == "experiment: planned"
        ),
    )
    story.beat("The bot has posted a plan with its cost", lab.said(pull, "### Plan 1"))

    lab.comment("sam", pull, "/run")
    refusal = story.wait("Sam, a stranger, comments /run", lambda: lab.said(pull, "**Not done:**"))
    story.beat("The bot has refused Sam's /run and started nothing", refusal)

    lab.ask("ada", "PATCH", f"/issues/{issue}", {"body": _form().replace("< 2.0", "< 9.0")})
    edited = story.wait(
        "Ada edits her second prediction to make it easier, but the seal exists already",
        lambda: lab.said(issue, "was edited after it was sealed"),
    )
    story.beat("The bot has shown the edit; the seal is unchanged", edited)

    lab.comment("grace", pull, f"Looks good.\n\n{lab.line(pull)}")
    story.wait(
        "Grace, a maintainer, comments the plan's /run line",
        # If the bot is slow and training fast, nobody sees it run.
        lambda: lab.said(pull, APPROVED) and lab.label(issue) in BEGUN,
    )
    approved = lab.said(pull, APPROVED)
    story.beat("Grace has approved the plan; the lab starts a Ray job", approved)

    _watch(lab, story)
    result = story.wait("the bot posts the result", lambda: lab.said(pull, "<summary>Receipt"))
    story.beat("The lab has trained and scored six models; the bot has posted the result", result)

    verdict = story.wait(
        "the bot posts the verdict in the issue",
        lambda: lab.said(issue, "shows the scores, the curves"),
    )
    if lab.said(issue, "**Difference from what was sealed:** the issue was edited once") != verdict:
        raise Missed("the verdict does not say that the issue was edited after it was sealed")
    story.wait("the bot sets the label to done", lambda: lab.label(issue) == "experiment: done")
    check = story.wait(
        "the bot completes the check",
        lambda: (found := lab.check(head, "regatta / x")) and found["conclusion"] and found,
    )
    if check["conclusion"] != "success":
        raise Missed(f"the check concluded {check['conclusion']}")
    _expect_both(lab)
    story.beat("The verdict is in the issue: one prediction confirmed, one refuted", verdict)

    board = f"{lab.bot}/index.html"
    story.wait("the bot builds the leaderboard", lambda: "fast" in lab.api.get(board).text)
    story.beat("The leaderboard has a row for each arm", board)
    _tell_of_steps(lab, root, story)


def _tell_of_steps(lab: Lab, root: Path, story: Story) -> None:
    """An experiment with own code: planned in its thread, run isolated if that works on this
    machine, otherwise run by its author."""
    folder = root / STEPS
    files = {
        f"{STEPS}/{path.name}": path.read_text() for path in folder.iterdir() if path.is_file()
    }
    title = _title(files[f"{STEPS}/experiment.yaml"])
    pull, head = _propose(lab, title, "", "wide-or-deep", files)
    story.wait(
        "Ada declares an experiment with steps, two of them in her own Python",
        lambda: lab.said(pull, "### Plan 1"),
    )
    story.beat("The bot has posted the plan of its steps", lab.said(pull, "### Plan 1"))

    lab.comment("grace", pull, lab.line(pull) or f"/run {head}")
    if not bubblewrap.probe():
        result = story.wait(
            "Grace approves it; the lab runs the steps, with Ada's code in isolation",
            lambda: lab.said(pull, "<summary>Receipt"),
            patience=TRAINING_MAY_TAKE,
        )
        story.beat("The lab has run Ada's code in isolation: prepare, train, compare", result)
        return
    refusal = story.wait(
        "Grace comments /run with the commit", lambda: lab.said(pull, "**Not done:**")
    )
    story.beat("Isolation does not work here: the bot has refused own code", refusal)

    mine = lab.home / "adas-store"
    command = [str(folder), "--store", str(mine)]
    ray = ["--ray-address", lab.ray.url, "--ray-token-file", str(lab.ray.token_file)]
    with child(lab.home, "run", [*command, *ray], surroundings()):
        table = story.wait(
            "Ada runs the steps on her own machine with regatta run",
            lambda: _compared(mine),
            patience=TRAINING_MAY_TAKE,
        )
    shown = lab.comment("ada", pull, f"I ran it on my own machine:\n\n{table}")
    story.beat("Ada has run the steps herself, and posted her table", shown)


def _compared(place: Path) -> str | None:
    """The output of the step `compare` in the store's one execution; None until it exists."""
    if not place.is_dir():
        return None
    store = Store(place)
    for name in record.names(store, "executions"):
        result = record.read(store, f"executions/{name}/result", record.Result)
        if result and result.state != "done":
            raise Missed(f"the steps: {result.state}, {result.why}")
        if result:
            execution = record.require(store, f"executions/{name}/execution", record.Execution)
            end = provenance.step_ends(store, execution)["compare"]
            return (store.local(end.folder) / "table.md").read_text()
    return None


def _title(declaration: str) -> str:
    """An experiment's title, which its issue and its pull request have, too."""
    return str(yaml.safe_load(declaration)["title"])


def _form() -> str:
    """The issue's body, as the experiment form renders it."""
    return (
        f"### Hypothesis\n\n{HYPOTHESIS}\n\n### Predictions\n\n```yaml\n{PREDICTIONS}\n```\n\n"
        "### Notes\n\n_No response_"
    )


def _propose(
    lab: Lab, title: str, words: str, branch: str, files: Mapping[str, str]
) -> tuple[int, str]:
    """Ada pushes a branch with these files to her fork and opens a pull request. Returns its number
    and head."""
    fork = lab.ask("ada", "POST", "/forks")["full_name"]

    def ask(method: str, path: str, body: Any = None) -> Any:
        return lab.ask("ada", method, path, body, repository=fork)

    base = ask("GET", "/git/ref/heads/main")["object"]["sha"]
    entries = [
        {"path": path, "mode": "100644", "type": "blob", "content": text}
        for path, text in files.items()
    ]
    tree = ask("POST", "/git/trees", {"base_tree": base, "tree": entries})["sha"]
    commit = {"message": f"Declare: {title}", "tree": tree, "parents": [base]}
    head = str(ask("POST", "/git/commits", commit)["sha"])
    ask("POST", "/git/refs", {"ref": f"refs/heads/{branch}", "sha": head})
    opened = {"title": title, "body": words, "head": f"ada:{branch}", "base": "main"}
    return int(lab.ask("ada", "POST", "/pulls", opened)["number"]), head


def _watch(lab: Lab, story: Story) -> None:
    """A progress bar from the records and the job's metrics, until the execution ends."""
    store = Store(lab.home / "store")
    leases = LeaseWatch(store)
    until = time.monotonic() + TRAINING_MAY_TAKE
    with terminal.Watching(story.console) as watching:
        while time.monotonic() < until:
            for name in record.names(store, "executions"):
                # The job's status is not needed: records and leases are enough.
                facts = effects.observe(store, lambda _: "unreachable", leases, name)
                if facts.result:
                    return
                ends = provenance.step_ends(store, facts.execution)
                watching.show(facts, progress(store, facts, ends, provenance.failed(ends)))
            time.sleep(0.5)
    raise Missed(f"training did not end within {TRAINING_MAY_TAKE:.0f} s")


def _expect_both(lab: Lab) -> None:
    store = Store(lab.home / "store")
    results = [
        record.require(store, f"executions/{name}/result", record.Result)
        for name in record.names(store, "executions")
    ]
    outcomes = [verdict.outcome for result in results for verdict in result.verdicts]
    if outcomes != ["confirmed", "refuted"]:
        raise Missed(f"the verdicts are {outcomes}, not confirmed and refuted")


def _stay(console: Console, lab: Lab) -> None:
    console.print(
        f"\nThe lab keeps running. Try it yourself at [blue]{lab.url()}[/blue]: open issues, and "
        "comment [bold]/status[/bold], [bold]/cancel[/bold] or [bold]/help[/bold] as Ada, Sam or "
        f"Grace.\nLeaderboard: [blue]{lab.bot}/index.html[/blue]. Ctrl-C ends everything.\n"
    )
    try:
        while lab.ray.alive:
            time.sleep(0.5)
        console.print("Ray ended, so the demo ends.", style="red")
    except Stopped:
        return  # the handler has said so


# ── Odds and ends ────────────────────────────────────────────────────────────────────────────


def _show_logs(console: Console, home: Path) -> None:
    for log in sorted(home.glob("*.log")):
        tail = log.read_text(errors="replace").strip()[-1500:]
        if tail:
            console.print(Text(f"\n{log.name} ends with:\n{tail}", style="dim"))
