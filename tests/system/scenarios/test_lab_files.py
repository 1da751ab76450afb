"""The lab's own files on the sandbox: the default branch's count, and nobody else's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.controller.lab_files import LabFiles
from bot.github import GitHub
from bot.model.policy_file import OLD_PATH
from bot.service.server import create_app
from bot.setup.settings import Settings
from bot.site.pages.build import build
from engine.data.lab_texts import read_text
from runner.publish import charts
from runner.schema.lab_config import CORPORA, DEVICES, POLICY, TRACKS
from tests.decided import one_track
from tests.scenarios.lab import EXPERIMENT, Lab, a_lab
from tests.system.scenarios.test_approval import line
from tests.system.scenarios.test_story import PIXEL, executions, results

TEXT = read_text("lab-2026-11", None).validation_sha256
ENTERS = EXPERIMENT.replace("text.txt", "lab-2026-11").replace(
    "resources:", "speedrun: {track: mine, author: {name: Ada}}\nresources:"
)
THEIRS = {  # what a stranger would have the lab decide
    POLICY: b"commands:\n  run: {people: [sam, ada]}\n",
    DEVICES: b"cpu: {price: 0, peak_flops: 1e18}\ngold: {description: Gold, peak_flops: 1e9, "
    b"platform: cpu, ray_cpus: 1}\n",
    TRACKS: one_track("mine", 1000.0, 64, TEXT).encode(),
    CORPORA: b"theirs@1: {where: /root, format: text, licence: MIT, fetched: {sha256: '"
    + b"0" * 64
    + b"', files: 1, bytes: 1}}\n",
}


@pytest.fixture(params=["server", "actions"])
def lab(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """A lab with a price and a track of its own, and a sealed preregistration."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, mode=request.param) as lab:
        decide(lab, {DEVICES: "cpu: {price: 36}\n", TRACKS: one_track("mine", 2.0, 64, TEXT)})
        lab.preregister()
        yield lab


def decide(lab: Lab, files: dict[str, str | None]) -> None:
    """A maintainer changes the lab's files on the default branch."""
    content = {path: None if text is None else text.encode() for path, text in files.items()}
    lab.sandbox.commit("grace", "main", content, "The lab decides")


def propose(lab: Lab, declaration: str = ENTERS) -> int:
    """Ada declares an experiment, and brings the lab's files as she would have them."""
    lab.sandbox.commit("ada", "warm", {**THEIRS}, "And let me decide")
    return lab.propose(declaration)


def labs_files(lab: Lab) -> LabFiles:
    """As the bot's server reads them for the site."""
    api = f"{lab.sandbox.url}/api/v3"
    return LabFiles(GitHub("regatta-lab/lab", lambda: "installation-token", api=api))


def test_a_pull_requests_version_of_the_labs_files_is_never_believed(lab: Lab) -> None:
    pull = propose(lab)
    (planned,) = [one for one in lab.records("plans").values() if one["pull"] == pull]
    plan = planned["plan"]
    assert plan["devices"]["cpu"]["price"] == 36
    assert plan["devices"]["cpu"]["peak_flops"] == 1.92e11
    hours = plan["cost"]["device_seconds"]["cpu"][0] / 3600
    assert plan["cost"]["price"][0] == pytest.approx(36 * hours)
    assert plan["track"]["target"] == 2.0
    assert planned["policy"] == lab.sandbox.world.git.ref("refs/heads/main")
    assert "2 bits per byte" in lab.last(pull)
    for who in ("sam", "ada"):
        lab.say(who, pull, line(lab, pull))
        assert "Only people with the role `maintain` or `admin` may use `/run`" in lab.last(pull)
    lab.say("grace", pull, line(lab, pull))
    assert [one["state"] for one in results(lab)] == ["done"]
    (used,) = results(lab)[0]["used"]
    assert used["price"] == pytest.approx(36 * used["device_seconds"] / 3600)
    build(lab.store, lab.root / "site", tracks=labs_files(lab).tracks())
    told = json.loads((lab.root / "site/api/speedrun.json").read_text())
    assert told.keys() == {"mine"}
    assert told["mine"]["track"]["target"] == 2.0
    assert {row["track"] for row in told["mine"]["rows"]} == {"mine"}


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("kind: cpu", "kind: gold", "the lab has no devices of kind `gold`"),
        ("track: mine", "track: theirs", "there is no track `theirs`; there are mine"),
        ("source: lab-2026-11", "corpus: theirs@1", "the lab has no corpus `theirs@1`"),
    ],
)
def test_what_only_a_pull_requests_files_have_is_not_there(
    lab: Lab, was: str, now: str, words: str
) -> None:
    pull = propose(lab, ENTERS.replace(was, now))
    assert words in lab.last(pull)


def test_a_later_price_is_for_later_plans(lab: Lab) -> None:
    pull = lab.propose(ENTERS)
    decide(lab, {DEVICES: "cpu: {price: 72}\n"})
    lab.say("grace", pull, line(lab, pull))
    (name,) = executions(lab)
    execution = lab.records("executions")[f"{name}/execution.json"]
    assert execution["plan"]["devices"]["cpu"]["price"] == 36, "as it was approved"
    lab.say("grace", pull, "/plan")
    newest = [one for one in lab.records("plans").values() if one["pull"] == pull][-1]
    assert newest["plan"]["devices"]["cpu"]["price"] == 72


def test_a_file_that_is_broken_permits_nothing_and_starts_nothing_until_it_is_mended(
    lab: Lab,
) -> None:
    pull = lab.propose(ENTERS)
    decide(lab, {TRACKS: "tracks:\n  mine: {targt: 3}\n", DEVICES: "cpu: {prise: 1}\n"})
    lab.say("grace", pull, line(lab, pull))
    assert f"Nobody can command runs until this is fixed: {DEVICES}, line 1, " in lab.last(pull)
    assert lab.trainer.submissions == []
    other = lab.sandbox.commit("ada", "warm", {"experiments/warm/notes.md": b"More"}, "More")
    lab.settle()
    assert lab.sandbox.world.git.ref("refs/heads/warm") == other
    for words in (
        f"{DEVICES}, line 1, `cpu.prise`: unknown key; did you mean `price`?",
        f"{TRACKS}, line 2, `tracks.mine.targt`: unknown key; did you mean `target`?",
        "The lab's own files on its default branch have mistakes",
    ):
        assert words in lab.last(pull).replace("\\", ""), lab.last(pull)
    decide(lab, {TRACKS: one_track("mine", 2.0, 64, TEXT), DEVICES: None})
    lab.say("grace", pull, "/plan")
    lab.say("grace", pull, line(lab, pull, 4))
    assert [one["state"] for one in results(lab)] == ["done"]


def served(lab: Lab) -> Settings:
    """The settings of a second server of the same lab, which has its own store."""
    (lab.root / "token").write_text("a-token-of-the-tests")
    return Settings(
        store=str(lab.root / "served"),
        repository="regatta-lab/lab",
        webhook_secret="a secret of the tests",
        github_token="installation-token",
        bot="regatta-lab[bot]",
        isolation="none",
        ray_address="http://127.0.0.1:9",
        ray_token_file=lab.root / "token",
        github_api=f"{lab.sandbox.url}/api/v3",
    )


def test_a_file_that_is_broken_leaves_the_site_with_the_tracks_that_were_read_last(
    lab: Lab,
) -> None:
    server, broken = labs_files(lab), {DEVICES: "cpu: {prise: 1}\n"}
    assert server.tracks()["mine"].target == 2.0
    decide(lab, {**broken})
    assert server.tracks()["mine"].target == 2.0
    create_app(served(lab))  # which knows no earlier ones
    assert (lab.root / "served/site/index.html").is_file()


def test_the_site_of_a_lab_without_executions_leads_to_the_form_for_a_question(lab: Lab) -> None:
    create_app(served(lab))
    front = (lab.root / "served/site/index.html").read_text()
    assert f'{lab.sandbox.url}/regatta-lab/lab/issues/new?template=experiment.yml"' in front


def test_a_policy_at_its_old_path_counts_for_nothing_and_the_move_is_told(lab: Lab) -> None:
    decide(lab, {POLICY: None, OLD_PATH: "own: true\n"})
    pull = lab.propose(ENTERS)
    lab.say("grace", pull, line(lab, pull))
    assert f"git mv {OLD_PATH} {POLICY}" in lab.last(pull)
    assert lab.trainer.submissions == []
