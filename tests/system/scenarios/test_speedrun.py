"""A stranger's way into a speedrun: from the starter to the rank in the thread, and to the same row
on the board; a record that is beaten, one that is not, and a reproduction that anybody may ask for.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.site.pages.build import build
from runner.planning import track_starter
from runner.publish import charts
from runner.schema import lab_config
from runner.store.store import Store
from tests.scenarios.lab import Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_approval import line
from tests.system.scenarios.test_story import PIXEL

LAB = lab_config.defaults()
STARTER = re.sub(
    r"num_train_steps: \d+",
    "num_train_steps: 10",
    track_starter.text(LAB.tracks["tiny-budget"], LAB.devices),
)
SCORES = {"first": 2.5, "quicker": 2.4, "lucky": 2.395}  # means, by branch


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    scores: list[float] = []
    trainer = StubRay(bpb=lambda _, seed: scores[-1] + 0.004 * (seed - 2))
    with a_lab(tmp_path, trainer) as lab:
        lab.scores = scores  # type: ignore[attr-defined]
        yield lab


def entered(lab: Lab, branch: str, rate: str) -> int:
    """A pull request with the starter at this learning rate, after the lab ran it."""
    text = STARTER.replace("learning_rate: 0.004", f"learning_rate: {rate}")
    path = f"experiments/{branch}/experiment.yaml"
    text = text.replace("An entry of mine", branch).replace("your name", "Ada")
    lab.sandbox.commit("ada", branch, {path: text.encode()}, "My idea")
    pull = lab.sandbox.open_pull("ada", branch, "It is quick.", branch).number
    lab.settle()
    lab.scores.append(SCORES[branch])  # type: ignore[attr-defined]
    lab.say("grace", pull, line(lab, pull))
    return pull


def test_the_rank_is_in_the_thread_and_the_board_says_the_same(lab: Lab) -> None:
    first = entered(lab, "first", "0.004")
    assert "**🏆 Record** for `main` on the track `tiny-budget`: 2.5000 ± 0.0063" in lab.last(first)
    better = lab.last(entered(lab, "quicker", "0.008"))
    assert "Rank 1 of 2. That is 0.1000 bits per byte below the record at that time" in better
    assert "1 setting: `train.learning_rate` 0.004 → 0.008" in better
    lucky = entered(lab, "lucky", "0.009")
    said = lab.last(lucky)
    assert "**Rank 1 of 3, tied with 1 other row**" in said
    assert "0.0050 bits per byte below the record at that time, quicker (p = 0.12" in said
    assert "Not a record" in said

    (ran,) = {
        name.split("/")[0]
        for name, one in lab.records("executions").items()
        if name.endswith("execution.json") and one["origin"]["pull"] == lucky
    }
    lab.say("sam", lucky, f"/reproduce {ran}")
    assert "**Asked:** sam asks" in lab.last(lucky)
    assert f"/reproduce {ran}" in lab.last(lucky)
    assert len(lab.trainer.submissions) == 3, "nothing has started"
    lab.say("grace", lucky, f"/reproduce {ran}")
    assert "Reproduced bit for bit" in lab.last(lucky)
    assert "tiny-budget" not in lab.last(lucky), "it is no entry of its own"

    store = Store(lab.root / "store")
    build(store, lab.root / "site")
    rows = json.loads((lab.root / "site/api/speedrun.json").read_text())["tiny-budget"]["rows"]
    assert [(one["title"], one["rank"], one["record"], one["reproduced"]) for one in rows] == [
        ("lucky", 1, False, 1),
        ("quicker", 1, True, 0),
        ("first", 3, True, 0),
    ]
    assert rows[0]["below"] == pytest.approx(0.005)
    assert f"p = {rows[0]['p_value']:.2g} if" in said
    board = (lab.root / "site/speedrun.html").read_text()
    assert "reproduced ×1" in board
