"""Of `test_logs.py` what needs a process, a socket or a compilation."""

import io
import json
from pathlib import Path

from tests.scenarios.lab import a_lab
from tests.unit.bot.test_logs import lines
from tests.unit.bot.test_logs import stream as stream  # a fixture


def test_a_delivery_can_be_followed_from_the_gate_to_what_it_caused(
    tmp_path: Path, stream: io.StringIO
) -> None:
    with a_lab(tmp_path) as lab:
        lab.preregister()
        (opened,) = [one for one in lab.sandbox.webhooks.deliveries if one.action == "opened"]
    told = [line for line in lines(stream) if opened.id in json.dumps(line)]
    messages = [line["message"] for line in told]
    assert messages[0] == "issues is answered 202: Kept."
    assert any(message.startswith("write preregistrations/") for message in messages)
    assert any(message.startswith("say ") for message in messages)
    assert messages[-1] == "dealt with"
    assert all(line["thread"] == 1 for line in told[1:])
    assert not any("warmer" in line["message"] for line in lines(stream))  # words of strangers
