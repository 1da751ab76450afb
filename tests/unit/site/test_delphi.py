"""The pages of the sealed forecasts: what was said, from what, and how it came out."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.site.base.files import File
from bot.site.facts import sealed
from bot.site.pages import delphi
from bot.site.pages.templating import look
from runner.analysis import sealed_forecast
from runner.analysis.sealed_forecast import Seal
from runner.cli import main
from runner.lib.canonical_json import to_json
from tests.unit.analysis.test_sealed import END, a_seal, the_run
from tests.unit.site.test_pages import Page


def write(folder: Path, seal: Seal, loss: float | None = None) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "seal.json").write_bytes(to_json(seal.model_dump(mode="json")))
    if loss is not None:
        found = sealed.read(folder)
        assert found
        came = sealed_forecast.outcome(seal, found.seal_sha256, the_run(loss=loss), "x1", END)
        (folder / "outcome.json").write_bytes(to_json(came.model_dump(mode="json")))


def drawn(site: Path, *folders: Path) -> dict[str, File]:
    found = {file.path: file for file in delphi.files(look("Lab"), folders)}
    for path, file in found.items():
        content = file.draw()
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return found


def test_the_list_has_each_sealed_forecast_in_its_order_with_how_it_came_out(
    tmp_path: Path,
) -> None:
    seal = a_seal()
    write(tmp_path / "new", seal)
    write(tmp_path / "far", seal, seal.forecast.loss * 1.5)
    write(tmp_path / "near", seal, seal.forecast.loss)
    (tmp_path / "unsealed").mkdir()
    site = tmp_path / "site"
    drawn(site, *(tmp_path / name for name in ("new", "far", "unsealed", "near")))
    page = Page(site / "delphi.html")
    links = [link for link in page.links if link.startswith("delphi/")]
    assert links == ["delphi/new.html", "delphi/far.html", "delphi/near.html"]
    assert all((site / link).is_file() for link in links)
    text = " ".join(page.text.split())
    assert "1 of 2 measured scores are inside the predicted interval" in text
    _, new, far, near = re.split(r" (?:new|far|near) ", text.split("Measured Error Result")[1])
    assert "the run has not finished" in new
    assert "−33.33 %" in far
    assert "outside the interval" in far
    assert "0.00 %" in near
    assert "inside the interval" in near
    for part in (new, far, near):
        assert f"{seal.forecast.reach:.1f}×" in part
        assert f"{seal.forecast.low:.4f} to {seal.forecast.high:.4f}" in part
    told = json.loads((site / "api" / "delphi.json").read_bytes())
    assert list(told) == ["far", "near", "new"]
    assert told["far"]["outcome"]["inside"] is False


def test_one_more_outcome_draws_its_page_and_the_list_again_and_no_other(tmp_path: Path) -> None:
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        write(folder, a_seal())
    before = {path: file.made_from for path, file in drawn(tmp_path / "site", *folders).items()}
    write(tmp_path / "one", a_seal(), 1.5)
    after = {path: file.made_from for path, file in drawn(tmp_path / "site", *folders).items()}
    assert {path for path in after if after[path] != before[path]} == {
        *("delphi.html", "api/delphi.json", "delphi/one.html", "api/delphi/one.json")
    }


def test_without_a_seal_there_is_no_page(tmp_path: Path) -> None:
    assert drawn(tmp_path, tmp_path / "delphi") == {}


def test_before_the_run_the_page_has_the_forecast_and_no_outcome(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal)
    (tmp_path / "delphi" / "experiment.yaml").write_text("# One dial.\n#\n# Width.\ntitle: x\n# no")
    drawn(tmp_path, tmp_path / "delphi")
    text = Page(tmp_path / "delphi" / "delphi.html").text
    assert "One dial. Width. " in text
    assert "The run has not finished yet." in text
    assert f"{seal.forecast.loss:.4f}" in text
    assert "Outcome" not in text
    for point in seal.points:
        assert f"{point.loss:.4f}" in text


@pytest.mark.parametrize(("off", "word"), [(1.0, "inside"), (1.5, "outside")])
def test_the_outcome_is_shown_whatever_it_says(tmp_path: Path, off: float, word: str) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, seal.forecast.loss * off)
    drawn(tmp_path, tmp_path / "delphi")
    text = Page(tmp_path / "delphi" / "delphi.html").text
    assert f"The score is {word} the 90 % interval" in " ".join(text.split())
    assert f"{seal.forecast.loss * off:.4f}" in text
    twin = json.loads((tmp_path / "api" / "delphi" / "delphi.json").read_bytes())
    assert twin["outcome"]["inside"] == (off == 1.0)
    assert twin["made_again"] is True


def test_a_seal_that_does_not_hold_what_it_says_is_shown_as_such(tmp_path: Path) -> None:
    seal = a_seal()
    better = seal.forecast.model_copy(update={"loss": seal.forecast.loss * 1.01})
    write(tmp_path / "delphi", seal.model_copy(update={"forecast": better}))
    drawn(tmp_path, tmp_path / "delphi")
    assert "The seal is not valid" in Page(tmp_path / "delphi" / "delphi.html").text


def test_an_outcome_of_another_seal_is_noticed(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, 1.5)
    write(tmp_path / "delphi", seal.model_copy(update={"experiment": "another"}))
    found = sealed.read(tmp_path / "delphi")
    assert found
    assert found.trouble == "the outcome is of another seal"


def test_alternative_forecasts_are_shown_beside_the_seal(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, 1.5)
    found = sealed.read(tmp_path / "delphi")
    assert found
    told = sealed.others(found)
    assert [other.words for other in told][:2] == [
        "stated floor, c = 0.6",
        "no floor (a straight line on logarithmic axes)",
    ]
    assert all(other.error == pytest.approx(other.loss / 1.5 - 1) for other in told if other.loss)


def test_each_rung_is_also_foretold_by_the_law_through_the_others(tmp_path: Path) -> None:
    write(tmp_path / "delphi", a_seal())
    found = sealed.read(tmp_path / "delphi")
    assert found
    assert [rung.left_out for rung in found.rungs] == pytest.approx([0] * 6, abs=1e-6)
    largest = found.rungs[-1].points[0].model_flops
    points = tuple(
        point.model_copy(update={"loss": point.loss * (1.1 if point.model_flops == largest else 1)})
        for point in found.seal.points
    )
    bent = replace(found, seal=found.seal.model_copy(update={"points": points}))
    assert bent.rungs[-1].left_out == pytest.approx(1 / 1.1 - 1)


def test_the_page_says_by_which_command_the_forecast_is_made_again() -> None:
    for folder in sealed.sealed_ones():
        drawn = {file.path: file for file in delphi.files(look("Lab"), [folder])}
        page = str(drawn[f"delphi/{folder.name}.html"].draw())
        found = re.search(r"<code>(regatta forecast --at [^<]*)</code>", page)
        assert found
        words = found[1].replace("experiments/", f"{folder.parent}/").split()
        done = CliRunner().invoke(main.app, words[1:])
        assert done.exit_code == 0, done.output
        seal = Seal.model_validate_json((folder / "seal.json").read_bytes())
        assert f"{seal.forecast.loss:.4f} bits per byte" in done.output


def test_the_page_says_how_many_other_readings_would_have_come_nearer(tmp_path: Path) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, seal.forecast.loss)
    drawn(tmp_path, tmp_path / "delphi")
    assert "would have been closer" not in Page(tmp_path / "delphi" / "delphi.html").text
    found = sealed.read(tmp_path / "delphi")
    assert found
    straight = sealed.others(found)[1].loss
    assert straight
    write(tmp_path / "delphi", seal, straight)
    drawn(tmp_path, tmp_path / "delphi")
    assert (
        "would have been closer to the measured score than the sealed forecast"
        in Page(tmp_path / "delphi" / "delphi.html").text
    )


def test_later_analyses_are_shown_beside_the_law(
    tmp_path: Path,
) -> None:
    seal = a_seal()
    write(tmp_path / "delphi", seal, 1.5)
    before = drawn(tmp_path, tmp_path / "delphi")["delphi/delphi.html"].made_from
    assert "Runs after the outcome" not in Page(tmp_path / "delphi" / "delphi.html").text
    one = {"arm": "w9", "seed": 0, "parameters": 1, "train_batch_size": 1, "num_train_steps": 1}
    rates = {"learning_rate": 0.125, "adam_learning_rate": 0.25}
    law = seal.forecast.law.loss(1e12)
    told = {"what": "It bends.", "runs": [one | rates | {"model_flops": 1e12, "loss": law * 1.1}]}
    (tmp_path / "delphi" / "afterwards.json").write_bytes(to_json(told))
    assert drawn(tmp_path, tmp_path / "delphi")["delphi/delphi.html"].made_from != before
    text = " ".join(Page(tmp_path / "delphi" / "delphi.html").text.split())
    assert "It bends." in text
    assert f"w9 1.00e12 0.125 0.25 {law * 1.1:.4f} {law:.4f} +10.00 %" in text


def test_an_equal_page_is_not_drawn_again(tmp_path: Path) -> None:
    write(tmp_path / "delphi", a_seal())
    first = drawn(tmp_path, tmp_path / "delphi")["delphi/delphi.html"].made_from
    assert drawn(tmp_path, tmp_path / "delphi")["delphi/delphi.html"].made_from == first
    write(tmp_path / "delphi", a_seal(), 1.5)
    assert drawn(tmp_path, tmp_path / "delphi")["delphi/delphi.html"].made_from != first
