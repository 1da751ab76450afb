"""Of `test_operate.py` what needs a process, a socket or a compilation."""

import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bot.service import health
from bot.telemetry import metrics
from runner.execution.local_ray import free_ports
from runner.store.store import Store
from tests.unit.bot.test_operate import Clock, a_loop, served


def test_figures_are_served_on_a_port_of_their_own(tmp_path: Path) -> None:
    clock = Clock()
    served(Store(tmp_path), a_loop(clock))
    clock.now += 5
    metrics.answered("issues", 202, 0.004)
    port = free_ports(1)[0]
    end = health.serve_metrics("127.0.0.1", port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        end()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert found["regatta_loop_stood_still_seconds"].samples[0].value == 5
    assert found["regatta_leads"].samples[0].value == 1
    assert 'regatta_deliveries_total{event="issues",status="202"}' in text
