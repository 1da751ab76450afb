"""A flood over real HTTP: `python -m tests.bench.flood`. Three strangers command every two seconds
for ten minutes on a maintainer's pull request, where she starts an experiment and asks for its
status again and again. How long does she wait for 👀, who wrote how much, and is the result there?
The bot is a process of its own, with its usual second between two writes; training is real. Writes
`results/flood.json`."""

import argparse
import json
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.controller.write_budget import LIMITS, POOL, Rank
from bot.controller.write_log import lately
from bot.fake_github.world.sandbox import Sandbox
from bot.fake_github.world.state import User
from runner.execution.local_ray import local_ray
from runner.store.store import Store
from tests.bench.bot import _quantiles, _said, a_lab, propose, wait_for
from tests.bench.cpu import RESULTS, machine
from tests.system.scenarios.test_floods import COMMANDS, PROMISED

EVERY = 2.0  # seconds between two commands of one stranger
ASKED_EVERY = 30.0  # seconds between two commands of the maintainer


def flood(sandbox: Sandbox, store: Path, minutes: float) -> dict[str, Any]:
    """Flood, and what came of it."""
    people = [User(1000 + n, f"stranger{n}", f"Stranger {n}") for n in range(3)]
    sandbox.world.users.update((one.login, one) for one in people)
    pull, head = propose(sandbox, "flooded", 0)
    ends = time.monotonic() + minutes * 60

    def command(login: str) -> None:
        n = 0
        while time.monotonic() < ends:
            sandbox.comment(login, pull, COMMANDS[n % len(COMMANDS)].format(n=n))
            n += 1
            time.sleep(EVERY)

    strangers = [threading.Thread(target=command, args=(one.login,)) for one in people]
    for n, stranger in enumerate(strangers):
        time.sleep(EVERY / len(strangers) if n else 0.0)
        stranger.start()
    took = list[float]()
    while time.monotonic() < ends - ASKED_EVERY:
        time.sleep(ASKED_EVERY)
        body = "/status" if took else f"/run {head}"
        at = time.perf_counter()
        mine = sandbox.comment("grace", pull, body).reactions
        wait_for("a reaction", lambda mine=mine: len(mine), every=0.01)  # 🚀 if its answer stands
        took.append(time.perf_counter() - at)
    for stranger in strangers:
        stranger.join()
    wait_for("the result", lambda: _said(sandbox, pull, "<summary>Receipt"))
    written = lately(Store(store), sandbox.world.repository_id, datetime.now(UTC))
    return {
        "minutes": minutes,
        "commands_of_strangers": sum(
            one.user.login.startswith("stranger") for one in sandbox.issue(pull).comments
        ),
        "eyes": {"count": len(took), "promised": PROMISED, **_quantiles(took)},
        "writes": Counter(cause.rank.name.lower() for _, cause in written),
        "writes_of_an_hour": LIMITS[1][1],
        "part_of_strangers": POOL[Rank.STRANGER],
    }


def main() -> None:
    """Flood, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, local_ray(Path(folder) / "ray") as ray:
        home = Path(folder)
        with a_lab(home, ray) as (sandbox, store, _):
            try:
                found = flood(sandbox, store, options.minutes)
            except AssertionError:
                print((home / "bot.log").read_text())
                raise
    results = {"machine": machine("fastapi", "ray"), **found}
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "flood.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
