"""Words never wait for pictures: a result is said at once, and its curves come by an edit."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.fake_github.world.faults import Fault
from runner.publish import charts
from tests.scenarios.lab import Lab, Mode, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_faults import PIXEL
from tests.system.scenarios.test_forbidden import always, told
from tests.system.scenarios.test_recovery import begun, turn

PICTURE = re.compile(r"!\[Training loss[^\]]*\]\((\S+)\)")
UPLOADS = r"/git/(blobs|trees|commits|refs)$"
FOLLOW = "The loss curves follow."


# What the way of Actions adds, a new process each time, a restart and faults now and then show.
IN_BOTH_MODES = pytest.mark.parametrize(
    "lab", ["server", pytest.param("actions", marks=pytest.mark.long)], indirect=True
)


@pytest.fixture
def lab(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """A lab with an execution that waits to be told to go on."""
    mode: Mode = getattr(request, "param", "server")
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0), mode=mode) as lab:
        lab.preregister()
        lab.propose()
        begun(lab)
        yield lab


def finished(lab: Lab, seconds: float = 60) -> None:
    """The job comes to its end, and the bot has a while."""
    lab.trainer.pace = None
    turn(lab, seconds)


def result(lab: Lab) -> str:
    (found,) = [body for body in lab.comments(2) if "<summary>Receipt</summary>" in body]
    return found


def edits(lab: Lab) -> int:
    """How often the result was edited."""
    (id,) = [
        one.id for one in lab.sandbox.issue(2).comments if "<summary>Receipt</summary>" in one.body
    ]
    return sum(
        ask.method == "PATCH" and ask.path.endswith(f"/comments/{id}")
        for ask in lab.sandbox.requests
    )


@IN_BOTH_MODES
def test_a_result_is_one_comment_with_its_picture(lab: Lab) -> None:
    finished(lab)
    assert PICTURE.search(result(lab))
    assert FOLLOW not in result(lab)
    assert edits(lab) == 0


@pytest.mark.parametrize("status", [502, 403, 429])
def test_words_do_not_wait_for_a_picture_that_comes_by_an_edit(lab: Lab, status: int) -> None:
    always(lab, "POST", UPLOADS, "Server Error", status)
    finished(lab, 120 if status == 429 else 60)  # with a 429 GitHub wants a pause of everything
    said = result(lab)
    assert FOLLOW in said
    assert not PICTURE.search(said)
    assert lab.labels(1) == ["experiment: done"]
    assert told(lab, "erdict", 1) == 1
    turn(lab, 600)
    assert result(lab) == said
    assert edits(lab) == 0
    lab.sandbox.faults.clear()
    turn(lab, 900)
    shown = result(lab)
    address = PICTURE.search(shown)
    assert address
    assert shown == said.replace(FOLLOW, address[0]), "and nothing else has changed"
    assert edits(lab) == 1
    assert told(lab, "<summary>Receipt</summary>") == 1
    turn(lab, 600)
    assert edits(lab) == 1


@pytest.mark.parametrize(
    ("lab", "fails"),
    [
        ("server", "before the upload"),
        ("server", "before the edit"),
        pytest.param("actions", "before the upload", marks=pytest.mark.long),
    ],
    indirect=["lab"],
)
def test_a_picture_comes_once_also_after_a_restart(lab: Lab, fails: str) -> None:
    always(lab, "POST", UPLOADS, "Server Error", 502)
    finished(lab)
    said = result(lab)
    lab.die()
    if fails == "before the edit":
        always(lab, "PATCH", r"/issues/comments/", "Server Error", 502)
        lab.sandbox.faults._set = [x for x in lab.sandbox.faults._set if x.method == "PATCH"]
        lab.start()
        turn(lab, 600)
        assert result(lab) == said
        lab.die()
    lab.sandbox.faults.clear()
    lab.start()
    turn(lab, 600)
    assert PICTURE.search(result(lab))
    assert edits(lab) >= 1
    before = edits(lab)
    lab.die()
    lab.start()
    turn(lab, 600)
    assert edits(lab) == before
    assert told(lab, "<summary>Receipt</summary>") == 1


def test_a_picture_that_is_refused_for_good_is_promised_no_longer(lab: Lab) -> None:
    always(lab, "POST", UPLOADS, "Server Error", 502)
    finished(lab)
    assert FOLLOW in result(lab)
    lab.sandbox.faults.clear()
    always(lab, "POST", UPLOADS, "Payload Too Large", 413)
    turn(lab, 900)
    assert FOLLOW not in result(lab)
    assert not PICTURE.search(result(lab))
    assert edits(lab) == 1


@IN_BOTH_MODES
def test_an_upload_now_and_then_fails_and_the_result_has_its_picture(lab: Lab) -> None:
    for path in (r"/git/blobs$", r"/git/trees$", r"/git/refs$"):
        lab.sandbox.faults.add(Fault("status_after", "POST", path, 1, 502))
    finished(lab, 300)
    assert PICTURE.search(result(lab))
    assert told(lab, "<summary>Receipt</summary>") == 1
