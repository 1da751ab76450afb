"""Of `test_cluster.py` what needs a process, a socket or a compilation."""

import os
import subprocess
import sys
import time

import pytest

from runner.scheduler import cluster, simulate
from tests.unit.runner.test_cluster import EXAMPLE, ROOT


def test_the_example_plays_and_imports_no_jax() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from runner.cli import main as cli\n"
        f"answer = CliRunner().invoke(cli.app, ['simulate', {str(EXAMPLE)!r}])\n"
        "print(answer.output, *{'jax', 'ray', 'tensorstore', 'flax', 'altair'} & {*sys.modules})\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "110"},
        check=True,
    ).stdout
    assert "400 runs on 840 devices: done after" in answer
    assert answer.rstrip().endswith("first has its devices")


# ── Large ────────────────────────────────────────────────────────────────────────────────────

LARGE = {
    "slices": "kind: v5p, count: 5120, slice: 16",
    "singly": "kind: h100, count: 5000",
}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("days", [2, 20])
@pytest.mark.parametrize("pool", LARGE)
def test_ten_thousand_runs_on_five_thousand_chips(
    pool: str, days: int, capsys: pytest.CaptureFixture[str]
) -> None:
    load = f"synthetic: {{runs: 10000, people: 40, days: {days}}}\nattempts: 1000\n"
    pools = f"pools:\n  all: {{{LARGE[pool]}, preemptions_per_device_hour: 0.001}}\n"
    found = cluster.parse(pools + load, "large.yaml")
    arriving = list(cluster.synthetic(found.synthetic, found.cluster, seed=0))
    began = time.perf_counter()
    fates = simulate.simulate(arriving, found.cluster, found.policy, found.faults)
    seconds = time.perf_counter() - began
    summary = simulate.summarise(fates, found.cluster, found.prices)
    with capsys.disabled():
        print(
            f"\n10,000 runs, {pool}, over {days} days: played in {seconds:.1f} s; "
            f"{summary.pools[0].utilisation:.0%} in use, {summary.all.preemptions} preemptions"
        )
    assert summary.all.finished == 10_000
