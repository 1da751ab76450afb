"""The page of the sealed forecast: what was said, from what, and how it came out."""

import json
from pathlib import Path

import pytest

from bot.site import delphi, templating
from bot.site.files import File
from runner.analysis import sealed
from runner.analysis.sealed import Seal
from runner.store import to_json
from tests.analysis.test_sealed import END, a_seal, the_run
from tests.site.test_pages import Page


def write(folder: Path, seal: Seal, loss: float | None = None) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "seal.json").write_bytes(to_json(seal.model_dump(mode="json")))
    if loss is not None:
        found = delphi.read(folder)
        assert found
        came = sealed.outcome(seal, found.seal_sha256, the_run(loss=loss), "x1", END)
        (folder / "outcome.json").write_bytes(to_json(came.model_dump(mode="json")))


def drawn(folder: Path, site: Path) -> dict[str, File]:
    environment = templating.environment("Lab", None, False)
    found = {file.path: file for file in delphi.files(environment, "", folder)}
    for path, file in found.items():
        content = file.draw()
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return found


def test_without_a_seal_there_is_no_page(tmp_path: Path) -> None:
    assert drawn(tmp_path, tmp_path) == {}


def test_before_the_run_the_page_has_the_forecast_and_no_outcome(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal)
    (tmp_path / "delphi" / "experiment.yaml").write_text("# One dial.\n#\n# Width.\ntitle: x\n# no")
    drawn(tmp_path / "delphi", tmp_path)
    text = Page(tmp_path / "delphi.html").text
    assert "One dial. Width. " in text
    assert "The run is not over yet." in text
    assert f"{seal.forecast.loss:.4f}" in text
    assert "How it came out" not in text
    for point in seal.points:
        assert f"{point.loss:.4f}" in text


@pytest.mark.parametrize(("off", "word"), [(1.0, "held it"), (1.5, "did not hold it")])
def test_the_outcome_is_shown_whatever_it_says(tmp_path: Path, off: float, word: str) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, seal.forecast.loss * off)
    drawn(tmp_path / "delphi", tmp_path)
    text = Page(tmp_path / "delphi.html").text
    assert f"interval {word}" in " ".join(text.split())
    assert f"{seal.forecast.loss * off:.4f}" in text
    twin = json.loads((tmp_path / "api" / "delphi.json").read_bytes())
    assert twin["outcome"]["inside"] == (off == 1.0)
    assert twin["made_again"] is True


def test_a_seal_that_does_not_hold_what_it_says_is_shown_as_such(tmp_path: Path) -> None:
    seal = a_seal()
    better = seal.forecast.model_copy(update={"loss": seal.forecast.loss * 1.01})
    write(tmp_path / "delphi", seal.model_copy(update={"forecast": better}))
    drawn(tmp_path / "delphi", tmp_path)
    assert "It does not hold what it says" in Page(tmp_path / "delphi.html").text


def test_an_outcome_of_another_seal_is_noticed(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, 1.5)
    write(tmp_path / "delphi", seal.model_copy(update={"experiment": "another"}))
    found = delphi.read(tmp_path / "delphi")
    assert found
    assert found.trouble == "the outcome is of another seal"


def test_what_other_readings_say_stands_beside_it(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, 1.5)
    found = delphi.read(tmp_path / "delphi")
    assert found
    told = delphi.others(found)
    assert [other.words for other in told][:2] == [
        "the floor stated, c = 0.6",
        "a straight line in the logarithms, without a floor",
    ]
    assert all(other.error == pytest.approx(other.loss / 1.5 - 1) for other in told if other.loss)


def test_the_page_says_how_many_other_readings_would_have_come_nearer(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, seal.forecast.loss)
    drawn(tmp_path / "delphi", tmp_path)
    assert "would have come nearer" not in Page(tmp_path / "delphi.html").text
    found = delphi.read(tmp_path / "delphi")
    assert found
    straight = delphi.others(found)[1].loss
    assert straight
    write(tmp_path / "delphi", seal, straight)
    drawn(tmp_path / "delphi", tmp_path)
    assert "would have come nearer than what was sealed" in Page(tmp_path / "delphi.html").text


def test_an_equal_page_is_not_drawn_again(tmp_path: Path) -> None:
    write(tmp_path / "delphi", a_seal())
    first = drawn(tmp_path / "delphi", tmp_path)["delphi.html"].made_from
    assert drawn(tmp_path / "delphi", tmp_path)["delphi.html"].made_from == first
    write(tmp_path / "delphi", a_seal(), 1.5)
    assert drawn(tmp_path / "delphi", tmp_path)["delphi.html"].made_from != first
