"""Records that are kept beside a declaration, and the site that shows them with a store's."""

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.main import app
from runner.history import kept_records
from runner.lib.paths import LAB
from runner.schema import record
from runner.store.store import Store
from tests import synthetic

ISSUE = 7
BESIDE = Path("experiments/warm/records")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two stores, `theirs` with a preregistered execution and `ours` without."""
    monkeypatch.chdir(tmp_path)
    theirs, ours = Store("theirs"), Store("ours")
    seal = synthetic.preregister(theirs, ISSUE)
    asked = synthetic.plan(predictions=seal.predictions, preregistration=ISSUE)
    synthetic.finish(theirs, synthetic.execution(asked, "theirs"), synthetic.PLAIN)
    synthetic.finish(theirs, synthetic.execution(synthetic.plan(), "other", pull=3), {})
    of = synthetic.execution(synthetic.plan(title="Ours"), "ours", pull=4)
    home = of.origin.model_copy(update={"repository": 8, "repository_name": "our/lab"})
    synthetic.finish(ours, of.model_copy(update={"origin": home}), synthetic.PLAIN)
    return tmp_path


def ask(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def refused(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code != 0
    return " ".join(done.output.split())


ID, OURS = record.execution_id("theirs"), record.execution_id("ours")
KEEP = ("store", "keep", ID, BESIDE, "--store", "theirs")


def test_a_site_shows_kept_records_with_those_of_its_store(here: Path) -> None:
    ask(*KEEP)
    ask("site", "build", "--store", "ours", "--out", "site")
    assert {path.name for path in (here / "site/executions").iterdir()} == {ID, OURS}
    page = (here / f"site/experiments/{synthetic.REPOSITORY}-{ISSUE}.html").read_text()
    assert "confirmed" in page or "refuted" in page
    assert "/our/lab/pull/4" in (here / f"site/executions/{OURS}/index.html").read_text()
    written = "".join(path.read_text() for path in (here / "site").rglob("*.html"))
    assert synthetic.REPOSITORY_NAME not in written  # readers may not find its threads


def test_what_is_kept_is_one_execution_with_its_seal_and_nothing_is_written_to_the_store(
    here: Path,
) -> None:
    before = sorted(here.glob("ours/**/*"))
    ask(*KEEP)
    ask("site", "build", "--store", "ours", "--out", "site")
    assert sorted(here.glob("ours/**/*")) == before
    kept = {file.name for file in Store(BESIDE).walk("records")}
    theirs = {file.name for file in Store("theirs").walk("records")}
    assert kept == {name for name in theirs if record.execution_id("other") not in name}
    assert f"records/preregistrations/{synthetic.REPOSITORY}/{ISSUE}/1.json" in kept


def test_without_a_store_the_site_shows_what_is_kept(here: Path) -> None:
    assert "no store" in refused("site", "build", "--store", "nowhere", "--out", "site")
    ask(*KEEP)
    ask("site", "build", "--store", "nowhere", "--out", "site")
    assert [path.name for path in (here / "site/executions").iterdir()] == [ID]
    assert not (here / "nowhere").exists()


def test_a_site_of_kept_records_links_the_repository_that_it_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REGATTA_REPOSITORY", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    ask(*KEEP)
    kept = ("site", "build", "--store", "nowhere", "--out", "site")

    def front() -> str:
        return (here / "site/index.html").read_text()

    ask(*kept)
    assert "Ask a question" not in front()
    ask(*kept, "--repository", "our/lab")
    assert 'href="https://github.com/our/lab">Repository</a>' in front()
    monkeypatch.setenv("GITHUB_REPOSITORY", "their/fork")  # as GitHub Actions sets it
    ask(*kept)
    assert "https://github.com/their/fork/issues/new?template=" in front()
    monkeypatch.setenv("REGATTA_REPOSITORY", "our/lab")
    ask(*kept)
    assert "https://github.com/our/lab/issues/new?template=" in front()
    ask("site", "build", "--store", "ours", "--out", "site", "--repository", "another/lab")
    assert "another/lab" not in front(), "the records name one"
    assert "write owner/name" in refused(*kept, "--repository", "https://github.com/our/lab")


def test_keeping_twice_changes_nothing_and_another_file_is_never_replaced(here: Path) -> None:
    assert ask(*KEEP) == ask(*KEEP)
    result = here / BESIDE / f"records/executions/{ID}/result.json"
    result.write_bytes(result.read_bytes() + b" ")
    assert "other bytes" in refused(*KEEP)


def test_an_execution_that_is_not_there_makes_no_folder(here: Path) -> None:
    assert "x0000" in refused("store", "keep", "x0000", BESIDE, "--store", "theirs")
    assert not (here / BESIDE).exists()


def test_records_that_another_kept_folder_has_with_other_bytes_are_not_kept(here: Path) -> None:
    ask(*KEEP)
    assert ask("store", "keep", ID, "experiments/again/records", "--store", "theirs")  # as they are
    result = here / BESIDE / f"records/executions/{ID}/result.json"
    result.write_bytes(result.read_bytes() + b" ")
    words = refused("store", "keep", ID, "experiments/cold/records", "--store", "theirs")
    assert f"{BESIDE}/records/executions/{ID}/result.json" in words
    assert "run the experiment again" in words
    assert not (here / "experiments/cold").exists()


def test_no_record_of_this_repository_is_kept_twice_with_other_bytes() -> None:
    found: dict[str, tuple[str, bytes]] = {}
    for place in kept_records.places(LAB / "experiments"):
        store = Store(place, make=False)
        for file in store.walk("records"):
            data = store.require(file.name)
            where, known = found.setdefault(file.name, (str(place), data))
            assert data == known, f"{place} and {where} have another {file.name}"


def test_each_execution_of_this_repository_is_kept_once_under_an_id_of_its_own() -> None:
    kept = [
        (name, str(place))
        for place in kept_records.places(LAB / "experiments")
        for name in record.names(Store(place, make=False), "executions")
    ]
    several = Counter(name for name, _ in kept)
    assert [one for one in kept if several[one[0]] > 1] == []
    assert len(kept) > 40
