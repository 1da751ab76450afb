"""`regatta demo`: the lab's whole story with real parts, shown in the terminal as it happens.

The supervisor owns the children (sandbox, Ray, bot; `bot.demo.stage`) and plays the people through
the sandbox's REST API. It observes the bot where people would: in threads, labels and checks.
"""

import json
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
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
HYPOTHESIS = (
    "A model of 0.9 million parameters that sees only 16 steps is far from any noise floor, so a "
    "ten times warmer learning rate should simply get further."
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
    console = Console(highlight=False)
    story = Story(console)
    missed: str | None = None
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="regatta-demo-", ignore_cleanup_errors=True)
        home = Path(stack.enter_context(scratch))
        try:
            lab = up(stack, home, port, story)
            _tell(lab, root, story)
        except (Missed, RayError, httpx.HTTPError, OSError) as error:
            missed = str(error) or type(error).__name__
            console.print(Text(f"✗ {missed}", style="bold red"))
            _show_logs(console, home)
        except KeyboardInterrupt:
            missed = "interrupted"
        if report:
            report.write_text(json.dumps(story.report(missed), indent=2) + "\n")
        if not missed and not once:
            _stay(console, lab)
    return 1 if missed and missed != "interrupted" else 130 if missed else 0


# ── The story ────────────────────────────────────────────────────────────────────────────────


def _tell(lab: Lab, root: Path, story: Story) -> None:
    story.console.print(
        "\n[bold]Regatta[/bold]: an open lab in a box. Everything below happens on this machine.\n"
    )
    story.beat("The sandbox, the bot and a local Ray are up", lab.url())

    issue = lab.ask(
        "ada", "POST", "/issues", {"title": "Experiment: a warmer start", "body": _form()}
    )["number"]
    story.wait(
        "Ada preregisters; the bot seals it",
        lambda: lab.said(issue, "### Sealed") and lab.label(issue) == "experiment: wishlist",
    )
    story.beat("Ada's predictions are sealed", lab.said(issue, "### Sealed"))

    first, _, rest = (root / EXPERIMENT).read_text().partition("\n")
    declaration = f"{first}\npreregistration: {issue}\n{rest}"
    words = f"Tests the predictions of #{issue}."
    pull, head = _propose(lab, "A warmer start", words, "warmer-start", {EXPERIMENT: declaration})
    story.wait(
        "Ada declares the experiment from her fork; the bot plans it, and runs nothing",
        lambda: (
            lab.said(pull, "### Plan 1")
            and lab.check(head, "regatta / plan")
            and lab.label(issue) == "experiment: planned"
        ),
    )
    story.beat("The plan is posted, with its cost", lab.said(pull, "### Plan 1"))

    lab.comment("sam", pull, "/run")
    refusal = story.wait("Sam, a stranger, says /run", lambda: lab.said(pull, "**Not done:**"))
    story.beat("Sam's /run is refused, and nothing starts", refusal)

    lab.ask("ada", "PATCH", f"/issues/{issue}", {"body": _form().replace("< 2.0", "< 9.0")})
    edited = story.wait(
        "Ada makes her second prediction easier, which is too late",
        lambda: lab.said(issue, "was edited after it was sealed"),
    )
    story.beat("The edit is shown with its difference, and the seal stands", edited)

    lab.comment("grace", pull, f"Looks good.\n\n{lab.line(pull)}")
    story.wait(
        "Grace, a maintainer, copies the plan's line",
        # If the bot is slow and training fast, nobody sees it run.
        lambda: lab.said(pull, APPROVED) and lab.label(issue) in BEGUN,
    )
    approved = lab.said(pull, APPROVED)
    story.beat("Grace's line approves the plan; an attempt is on its way to Ray", approved)

    _watch(lab, story)
    result = story.wait("the bot posts the result", lambda: lab.said(pull, "<summary>Receipt"))
    story.beat("Trained, evaluated, judged: the result is in the thread", result)

    verdict = story.wait("the issue hears of it", lambda: lab.said(issue, "Figures, curves and"))
    if lab.said(issue, "**Not as sealed:** the issue was edited once") != verdict:
        raise Missed("the verdict does not say that the issue was edited after it was sealed")
    story.wait("the label becomes done", lambda: lab.label(issue) == "experiment: done")
    check = story.wait(
        "the check completes",
        lambda: (found := lab.check(head, "regatta / x")) and found["conclusion"] and found,
    )
    if check["conclusion"] != "success":
        raise Missed(f"the check concluded {check['conclusion']}")
    _expect_both(lab)
    story.beat("The issue has its verdict: one prediction confirmed, one refuted", verdict)

    board = f"{lab.bot}/index.html"
    story.wait("the leaderboard is drawn", lambda: "fast" in lab.api.get(board).text)
    story.beat("The leaderboard has its rows", board)
    _tell_of_steps(lab, root, story)


def _tell_of_steps(lab: Lab, root: Path, story: Story) -> None:
    """An experiment with own code: planned in its thread, run isolated if that works on this
    machine, otherwise run by its author."""
    folder = root / STEPS
    files = {
        f"{STEPS}/{path.name}": path.read_text() for path in folder.iterdir() if path.is_file()
    }
    pull, head = _propose(lab, "Wide or deep?", "", "wide-or-deep", files)
    story.wait(
        "Ada declares five steps, two of them in Python", lambda: lab.said(pull, "### Plan 1")
    )
    story.beat("Five steps are planned, each with its code", lab.said(pull, "### Plan 1"))

    lab.comment("grace", pull, lab.line(pull) or f"/run {head}")
    if not bubblewrap.probe():
        result = story.wait(
            "Grace approves it, and the bot makes them, Ada's code under bubblewrap",
            lambda: lab.said(pull, "## 🏁 Done"),
            patience=TRAINING_MAY_TAKE,
        )
        story.beat("Own code has run in isolation: prepared, trained, compared", result)
        return
    refusal = story.wait("Grace says /run and its commit", lambda: lab.said(pull, "**Not done:**"))
    story.beat("Own code waits for its isolation: /run is refused, and says what works", refusal)

    mine = lab.home / "adas-store"
    command = [str(folder), "--store", str(mine)]
    ray = ["--ray-address", lab.ray.url, "--ray-token-file", str(lab.ray.token_file)]
    with child(lab.home, "run", [*command, *ray], surroundings()):
        table = story.wait(
            "regatta run makes them on Ada's machine",
            lambda: _compared(mine),
            patience=TRAINING_MAY_TAKE,
        )
    shown = lab.comment("ada", pull, f"I have run it on my own machine:\n\n{table}")
    story.beat("Prepared, tokenized, trained, evaluated, compared: Ada shows her table", shown)


def _compared(place: Path) -> str | None:
    """The output of the step `compare` in the store's one execution; None until it exists."""
    if not place.is_dir():
        return None
    store = Store(place)
    for name in record.names(store, "executions"):
        result = record.read(store, f"executions/{name}/result", record.Result)
        if result and result.state != "done":
            raise Missed(f"the five steps: {result.state}, {result.why}")
        if result:
            execution = record.require(store, f"executions/{name}/execution", record.Execution)
            end = provenance.step_ends(store, execution)["compare"]
            return (store.local(end.folder) / "table.md").read_text()
    return None


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
        raise Missed(f"the predictions came out {outcomes}, not confirmed and refuted")


def _stay(console: Console, lab: Lab) -> None:
    console.print(
        f"\nThe lab stays up. Go on playing at [blue]{lab.url()}[/blue]: open issues, comment as "
        "Ada, Sam or Grace, try [bold]/status[/bold], [bold]/cancel[/bold], [bold]/help[/bold]."
        f"\nThe leaderboard is at [blue]{lab.bot}/index.html[/blue]. Ctrl-C ends everything.\n"
    )
    try:
        while lab.ray.alive:
            time.sleep(0.5)
        console.print("Ray has ended; so does the demo.", style="red")
    except KeyboardInterrupt:
        console.print("\nEnding …", style="dim")


# ── Odds and ends ────────────────────────────────────────────────────────────────────────────


def _show_logs(console: Console, home: Path) -> None:
    for log in sorted(home.glob("*.log")):
        tail = log.read_text(errors="replace").strip()[-1500:]
        if tail:
            console.print(Text(f"\n{log.name} ends with:\n{tail}", style="dim"))
