"""How quick the bot is: `python -m tests.bench.bot`. The bot is a process of its own, as `regatta
serve` starts it, on a store on this disk; the sandbox stands in for GitHub in this process, so
that nothing of a network is in the figures. Three questions: how many signed deliveries it
accepts a second and how long a 2xx takes, with every record synced to disk; how long a person
waits for 👀; and how long from `/run` to the first training step on a Ray that is up and has
trained before. Writes `results/bot.json` and `bot.md`."""

import argparse
import contextlib
import copy
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bot.fake_github.server import running
from bot.fake_github.world.sandbox import Sandbox, make_sandbox
from bot.fake_github.world.webhooks import sign
from runner.execution.local_ray import free_ports, local_ray
from runner.execution.ray_jobs import RayAddress
from tests.bench.cpu import RESULTS, machine, wait_for_quiet
from tests.scenarios.lab import EXPERIMENT, ROOT, SECRET, TEXT, TOKENS

PATIENCE = 180.0  # seconds
THREADS = 20  # issues that the deliveries are about
CONNECTIONS = 8
CURVES = "steps/train/*/*.scratch/curve/*.jsonl"  # what trains notes them in its scratch
PACE = 20.0  # deliveries a second, where it is not hurried; GitHub's busiest labs send fewer


@contextlib.contextmanager
def a_lab(home: Path, ray: RayAddress) -> Iterator[tuple[Sandbox, Path, int]]:
    """Sandbox and bot: the sandbox, the bot's store, and its port."""
    port = free_ports(1)[0]
    github = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in (ROOT / ".github").rglob("*")
        if path.is_file()
    }
    sandbox = make_sandbox(
        home / "sandbox",
        files=github,
        bot_token="installation-token",
        persona_tokens=TOKENS,
        webhook_secret=SECRET,
        webhook_url=f"http://127.0.0.1:{port}/webhook",
    )
    with running(sandbox) as url:
        bot = subprocess.Popen(
            [
                *(sys.executable, "-m", "bot", "serve", "--repository", "regatta-lab/lab"),
                *("--store", str(home / "store"), "--github-api", f"{url}/api/v3"),
                *("--ray-address", ray.url, "--ray-token-file", str(ray.token_file)),
                *("--port", str(port), "--logs", "json"),
            ],
            env={
                "PATH": os.environ["PATH"],
                "REGATTA_WEBHOOK_SECRET": SECRET,
                "REGATTA_GITHUB_TOKEN": "installation-token",
                "REGATTA_BOT": "regatta-lab[bot]",  # whom the sandbox takes the token for
            },
            cwd=ROOT,
            stderr=(home / "bot.log").open("wb"),
        )
        try:
            wait_for("the bot is ready", lambda: _asks(port, "/readyz") == 200 or _ended(bot))
            if _ended(bot):
                raise SystemExit((home / "bot.log").read_text())
            yield sandbox, home / "store", port
        finally:
            bot.terminate()
            bot.wait(60)


# ── Deliveries ───────────────────────────────────────────────────────────────────────────────


def deliveries(sandbox: Sandbox, port: int, hurried: int, paced: int) -> dict[str, Any]:
    """Signed comments without commands, on `THREADS` issues: as fast as `CONNECTIONS` can send
    them one after the other, and then `PACE` a second."""
    opened = [
        sandbox.open_issue("ada", "A thought", "Not an experiment.").number for _ in range(THREADS)
    ]
    said = sandbox.comment("ada", opened[0], "Just a thought about learning rates.").id
    template = wait_for(
        "GitHub tells of the comment",
        lambda: next((told for told in _comments(sandbox) if told["comment"]["id"] == said), None),
    )
    made = [_delivery(template, n, opened[n % THREADS]) for n in range(hurried + paced)]
    began = time.perf_counter()
    took = _send(port, made[:hurried], CONNECTIONS, None)
    seconds = time.perf_counter() - began
    calm = _send(port, made[hurried:], CONNECTIONS, PACE)
    return {
        "bytes": len(made[0][1]),
        "connections": CONNECTIONS,
        "hurried": {"count": hurried, "a_second": hurried / seconds, **_quantiles(took)},
        "paced": {"count": paced, "a_second": PACE, **_quantiles(calm)},
    }


def _comments(sandbox: Sandbox) -> list[dict[str, Any]]:
    """What GitHub told of comments."""
    told = list(sandbox.webhooks.deliveries)
    return [json.loads(one.body) for one in told if one.event == "issue_comment"]


def _delivery(template: dict[str, Any], n: int, number: int) -> tuple[dict[str, str], bytes]:
    payload = copy.deepcopy(template)
    payload["comment"]["id"] = 10_000_000 + n
    payload["issue"]["number"] = number
    body = json.dumps(payload).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": f"bench-{n}",
        "X-Hub-Signature-256": sign(SECRET, body),
    }
    return headers, body


def _send(
    port: int,
    made: list[tuple[dict[str, str], bytes]],
    connections: int,
    pace: float | None,
) -> list[float]:
    """Seconds from the first byte sent to the answer read, of each; all must be accepted."""
    took: list[float] = []
    began = time.perf_counter()

    def send(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for n in range(first, len(made), connections):
            if pace:
                time.sleep(max(0.0, began + n / pace - time.perf_counter()))
            headers, body = made[n]
            at = time.perf_counter()
            connection.request("POST", "/webhook", body, headers)
            answer = connection.getresponse()
            answer.read()
            took.append(time.perf_counter() - at)
            assert answer.status == 202, answer.status
        connection.close()

    senders = [threading.Thread(target=send, args=(n,)) for n in range(connections)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len(took) == len(made), "a delivery was not accepted"
    return took


# ── What people wait for ─────────────────────────────────────────────────────────────────────


def propose(sandbox: Sandbox, branch: str, seed: int) -> tuple[int, str]:
    """Ada declares a small experiment, one run; the pull request's number and head."""
    declared = EXPERIMENT.replace("preregistration: 1\n", "").replace("[0, 1, 2]", f"[{seed}]")
    files = {
        "experiments/warm/experiment.yaml": declared.encode(),
        "experiments/warm/text.txt": TEXT.encode(),
    }
    head = sandbox.commit("ada", branch, files, "Declare an experiment")
    pull = sandbox.open_pull("ada", f"Warmer, {branch}", "One run an arm.", branch).number
    wait_for("the plan", lambda: _said(sandbox, pull, "### Plan 1"))
    return pull, head


def eyes(sandbox: Sandbox, times: int) -> dict[str, Any]:
    """Seconds from a stranger's `/run` to 👀 below it, on a bot at rest."""
    pull, _ = propose(sandbox, "eyes", 0)
    took = []
    for _ in range(times):
        time.sleep(8)  # what it has to say about the one before is said by then
        at = time.perf_counter()
        comment = sandbox.comment("sam", pull, "/run")
        wait_for(
            "👀", lambda c=comment: any(one.content == "eyes" for one in c.reactions), every=0.005
        )
        took.append(time.perf_counter() - at)
    return {"count": times, **_quantiles(took)}


def first_step(sandbox: Sandbox, store: Path, times: int) -> dict[str, Any]:
    """Seconds from a maintainer's `/run` to the metrics of the first training step, on a Ray that
    is up; the first time is told apart, since nothing has been trained there before."""
    took = []
    for n in range(times + 1):
        pull, head = propose(sandbox, f"train-{n}", n + 1)
        time.sleep(5)
        before = set(store.glob(CURVES))
        at = time.perf_counter()
        sandbox.comment("grace", pull, f"/run {head}")
        wait_for(
            "the first step",
            lambda seen=before: set(store.glob(CURVES)) - seen,
            every=0.02,
        )
        took.append(time.perf_counter() - at)
        wait_for("the result", lambda p=pull: _said(sandbox, p, "<summary>Receipt"))
    return {"count": times, "first_ever": took[0], **_quantiles(took[1:])}


# ── Figures ──────────────────────────────────────────────────────────────────────────────────


def table(results: dict[str, Any]) -> str:
    """The figures for people."""
    hurried, paced = results["deliveries"]["hurried"], results["deliveries"]["paced"]
    looked, trained = results["eyes"], results["first_step"]
    return f"""\
| what | median | p99 or most |
| --- | ---: | ---: |
| a delivery's 2xx, {PACE:.0f} a second | {paced["p50"] * 1000:.1f} ms | \
{paced["p99"] * 1000:.1f} ms |
| a delivery's 2xx, {CONNECTIONS} connections at once: **{hurried["a_second"]:.0f} a second** | \
{hurried["p50"] * 1000:.1f} ms | {hurried["p99"] * 1000:.1f} ms |
| from a command to 👀 ({looked["count"]} times) | {looked["p50"]:.2f} s | {looked["most"]:.2f} s |
| from `/run` to the first training step, Ray warm ({trained["count"]} times) | \
{trained["p50"]:.1f} s | {trained["most"]:.1f} s |
"""


def _quantiles(took: list[float]) -> dict[str, float]:
    ordered = sorted(took)
    return {
        "p50": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "most": ordered[-1],
    }


def wait_for(what: str, look: Callable[[], Any], every: float = 0.1) -> Any:
    """What `look` returns once it returns something."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(every)
    raise AssertionError(f"{what}: it did not happen within {PATIENCE:.0f} s")


def _said(sandbox: Sandbox, number: int, words: str) -> bool:
    return any(words in comment.body for comment in list(sandbox.issue(number).comments))


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


def _asks(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def main() -> None:
    """Measure all, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hurried", type=int, default=2_000)
    parser.add_argument("--paced", type=int, default=600)
    parser.add_argument("--eyes", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    results: dict[str, Any] = {
        "machine": machine("fastapi", "uvicorn", "ray"),
        "load": os.getloadavg()[0],  # of others, on a machine that should be quiet
    }
    with tempfile.TemporaryDirectory() as folder, local_ray(Path(folder) / "ray") as ray:
        wait_for_quiet()
        home = Path(folder)
        with a_lab(home, ray) as (sandbox, store, port):
            results["eyes"] = eyes(sandbox, options.eyes)
            results["first_step"] = first_step(sandbox, store, options.runs)
            results["deliveries"] = deliveries(sandbox, port, options.hurried, options.paced)
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "bot.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "bot.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
