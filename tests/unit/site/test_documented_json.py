"""The site's JSON is what its page of the documentation says."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from bot.site.pages.api_forms import FILES as FORMS
from bot.site.pages.api_forms import schemas
from bot.site.pages.build import build
from runner.publish import signing
from runner.schema.record import PlanRecord
from runner.store.store import Store
from tests import synthetic
from tests.unit.runner.test_signing import NOW, receipt
from tests.unit.site.test_pages import Page

PAGE = (Path(__file__).parents[3] / "docs/reference/site-json.md").read_text()
FILES, ROW = (
    re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (`.+?) \|", part, re.MULTILINE)))
    for part in PAGE.split("## A row of the leaderboard")
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with something of everything."""
    place = tmp_path_factory.mktemp("lab")
    store = Store(place / "store")
    plan = PlanRecord(
        repository=7, pull=2, n=1, commit="a" * 40, at=NOW, plan=receipt(store).execution.plan
    )
    synthetic.record.write(store, "plans/7/2/1", plan)
    synthetic.studies(store)
    build(store, place / "site", key=signing.make_key(place / "lab.pem"))
    return place / "site"


def test_each_file_that_the_page_names_is_there_and_no_other_json(site: Path) -> None:
    there = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    patterns = [re.sub(r"<\w+>", "[^/]+", re.escape(name)).replace("…", ".+") for name in FILES]
    unwritten = [one for one in patterns if not any(re.fullmatch(one, path) for path in there)]
    assert not unwritten
    twins = [path for path in there if path.startswith("api/")]
    assert [path for path in twins if not any(re.fullmatch(one, path) for one in patterns)] == []


def test_a_row_of_the_leaderboard_has_the_keys_that_the_page_names(site: Path) -> None:
    board = json.loads((site / "api/leaderboard.json").read_text())
    for row in board["groups"][0]["rows"]:
        assert sorted(row) == sorted(ROW)
        assert row["hardware_flops"].keys() == {"low", "high", "how"}


def test_each_json_file_has_the_form_that_its_schema_says(site: Path) -> None:
    for one in FORMS:
        schema = json.loads((site / f"api/schema/{one.name}.json").read_bytes())
        of = Draft202012Validator(schema)
        found = sorted(
            site.glob(re.sub(r"<\w+>", "**/*" if "signed" in one.path else "*", one.path))
        )
        assert found, one.path
        for path in found[:50]:
            of.validate(json.loads(path.read_bytes()))
    board = json.loads((site / "api/leaderboard.json").read_bytes())
    board["groups"][0]["rows"][0]["rank"] = "first"
    with pytest.raises(ValidationError):
        Draft202012Validator(schemas()["leaderboard"]).validate(board)


def test_what_is_listed_for_programs_is_there(site: Path) -> None:
    for page in ("llms.txt", "AGENTS.md"):
        links = re.findall(r"\]\(([^)]+)\)", (site / page).read_text())
        assert links
        assert [link for link in links if not (site / link).is_file()] == []
    listed = Page(site / "api/index.html")
    assert "comment-plan" in listed.text
    assert "A plan: what would run at a commit, and what it costs." in listed.text
