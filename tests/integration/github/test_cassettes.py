"""Of `test_cassettes.py` what needs a process, a socket or a compilation."""

from pathlib import Path

import pytest

from bot.fake_github.server import Sandbox, running
from tests.github.operations import Subject
from tests.github.tapes import expected, record, replay
from tests.sandbox.fixtures import BOT_TOKEN


@pytest.mark.parametrize("name", ["reading", "writing"])
def test_a_cassette_replays_without_the_server(name: str, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.open_issue("ada", "A question")
    sandbox.commit("ada", "warm", {"experiments/warm/experiment.yaml": b"title: 1\n"}, "one")
    sandbox.open_pull("ada", "Warm", None, "warm")
    about = Subject("regatta-lab/lab", 1, 2, "grace", "2030-01-01T00:00:00+00:00")
    with running(sandbox) as url:
        api = f"{url}/api/v3"
        record(name, about, lambda: BOT_TOKEN, folder=tmp_path, api=api)
    told = replay(name, about, lambda: "another", folder=tmp_path, api=api)
    assert told == expected(name, tmp_path)
    assert BOT_TOKEN not in (tmp_path / f"{name}.yaml").read_text()
