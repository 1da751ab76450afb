"""Of `test_decide.py` what needs a process, a socket or a compilation."""

import subprocess
import sys

# ── Pure ─────────────────────────────────────────────────────────────────────────────────────


def test_the_rules_import_nothing_that_has_effects() -> None:
    code = "import sys, bot.rules.decide; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {
        "bot.rules.decide",
        "bot.rules.approval",
        "bot.rules.execution",
        "bot.rules.sealing",
        "bot.rules.plan",
    } <= loaded
    effects = {
        "github", "requests", "httpx", "fastapi", "ray", "jax",
        "bot.github", "bot.controller.observer", "bot.controller.effects",
        "bot.controller.reconciler", "bot.inbox.webhook",
        "runner.execution.effects", "runner.execution.ray_jobs",
    }  # fmt: skip
    assert not effects & loaded
