"""A lab of many runs: what a build reads and draws is counted, so that no clock can fail it."""

import json

import pytest

from bot.site.base import files, rows
from bot.site.facts.memory import NAME, Memory
from bot.site.pages.build import build
from runner.publish import signing
from runner.schema.metrics import BPB
from runner.store.store import Store
from tests import synthetic

EXECUTIONS = 20
MOST_BYTES = 300_000
SHARED = ("style.css", "site.js", "charts.js", "rows.js", "compare.js")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A lab of `EXECUTIONS`, which did not wait for the disk."""
    monkeypatch.setattr(Store, "create", synthetic.create_at_once)
    store = Store(tmp_path / "store")
    synthetic.board(store, EXECUTIONS)
    return store


def built(store, site):
    """What a new process reads and draws: executions read, paths drawn."""
    memory = Memory(site)
    return memory, build(Store(store.root), site, remembered=memory).drawn


def one_more(store, name="more"):
    of = synthetic.execution(synthetic.plan(title="One more"), name, pull=900)
    synthetic.finish(store, of, synthetic.PLAIN)
    return of.id


def test_when_nothing_has_changed_nothing_is_read_or_drawn(store, tmp_path):
    first, drawn = built(store, tmp_path / "site")
    assert first.read == EXECUTIONS
    assert len([path for path in drawn if path.startswith("runs/")]) == 2 * 6 * EXECUTIONS
    again, drawn = built(store, tmp_path / "site")
    assert (again.read, drawn) == (0, ())


def test_one_more_execution_is_read_alone_and_draws_its_own_pages_and_the_boards(store, tmp_path):
    built(store, tmp_path / "site")
    new = one_more(store)
    memory, drawn = built(store, tmp_path / "site")
    assert memory.read == 1
    own = [path for path in drawn if path.startswith(("runs/", "executions/"))]
    assert len(own) == 2 * 6 + 2
    assert all(new in path for path in own)
    assert {"index.html", "leaderboards.html", "api/leaderboard.json"} < set(drawn)
    built(store, tmp_path / "fresh")
    assert pages_and_scripts(tmp_path / "site") == pages_and_scripts(tmp_path / "fresh")


def pages_and_scripts(site):
    found = (path for path in site.rglob("*") if path.suffix in (".html", ".js"))
    return {path.relative_to(site): path.read_bytes() for path in found}


@pytest.mark.parametrize("spread", [0.01, 1.0])  # a wide one ties with rows of the script before
def test_only_scripts_of_a_leaderboard_whose_rows_have_changed_are_drawn_again(
    store, tmp_path, monkeypatch, spread
):
    monkeypatch.setattr(rows, "CHUNK", 5)
    built(store, tmp_path / "site")
    groups = json.loads((tmp_path / "site" / "api" / "leaderboard.json").read_bytes())["groups"]
    ours, other = sorted(groups, key=lambda group: group["source"] != "stdlib")
    of = synthetic.execution(synthetic.plan(title="One more"), "more", pull=900)
    worse = 1e-4 + ours["rows"][9][BPB]  # than the first ten rows, which have two scripts
    figures = synthetic.figures(*([worse - spread, worse, worse + spread] for _ in range(2)))
    synthetic.finish(store, of, figures)
    _, drawn = built(store, tmp_path / "site")
    scripts = [path for path in drawn if path.startswith("boards/") and path.endswith(".js")]
    assert f"boards/{ours['validation_sha256'][:12]}-{ours['eval_tokens']}.chart.js" in scripts
    assert not any(other["validation_sha256"][:12] in path for path in scripts)
    numbered = [path for path in scripts if path.split(".")[-2].isdigit()]
    assert 0 < len(numbered) < -(-(len(ours["rows"]) + 2) // 5)
    built(store, tmp_path / "fresh")
    assert pages_and_scripts(tmp_path / "site") == pages_and_scripts(tmp_path / "fresh")


def test_an_execution_that_runs_is_read_each_time_until_it_has_ended(store, tmp_path):
    running = synthetic.execution(synthetic.plan(title="It runs"), "running", pull=901)
    synthetic.begin(store, running, "t1.claimed", "t1.started")
    built(store, tmp_path / "site")
    assert built(store, tmp_path / "site")[0].read == 1
    synthetic.finish(store, running, synthetic.PLAIN)
    assert built(store, tmp_path / "site")[0].read == 1
    assert built(store, tmp_path / "site")[0].read == 0


def test_a_stale_site_cache_is_ignored(store, tmp_path):
    built(store, tmp_path / "site")
    result = next((tmp_path / "store" / "records" / "executions").glob("*/result.json"))
    result.write_bytes(result.read_bytes() + b"\n")
    assert built(store, tmp_path / "site")[0].read == 1


@pytest.mark.parametrize("spoiled", [b"", b"not JSON\n", b"{}\n{}\n"])
def test_an_unreadable_site_cache_is_rewritten(store, tmp_path, spoiled):
    built(store, tmp_path / "site")
    kept = (tmp_path / "site" / NAME).read_bytes()
    (tmp_path / "site" / NAME).write_bytes(spoiled)
    memory, drawn = built(store, tmp_path / "site")
    assert (memory.read, drawn) == (EXECUTIONS, ())
    assert (tmp_path / "site" / NAME).read_bytes() == kept


def test_an_upgrade_reads_and_draws_everything_again(store, tmp_path, monkeypatch):
    _, first = built(store, tmp_path / "site")
    monkeypatch.setattr(files, "edition", lambda: "another")
    monkeypatch.setattr("bot.site.facts.memory.edition", lambda: "another")
    memory, drawn = built(store, tmp_path / "site")
    assert (memory.read, drawn) == (EXECUTIONS, first)


def test_every_file_of_the_labs_code_is_in_the_edition(tmp_path, monkeypatch):
    for room in files.ROOMS:
        (tmp_path / room).mkdir()
    sentence = tmp_path / "runner" / "figures.py"
    sentence.write_text("one")
    monkeypatch.setattr(files, "__file__", str(tmp_path / "bot/site/base/files.py"))
    files.edition.cache_clear()
    before = files.edition()
    sentence.write_text("two")
    files.edition.cache_clear()
    assert files.edition() != before
    files.edition.cache_clear()


def test_no_page_or_script_of_its_own_has_300_kilobytes(store, tmp_path):
    site = tmp_path / "site"
    built(store, site)
    shared = sum((site / name).stat().st_size for name in SHARED)
    sizes = {path: path.stat().st_size + shared for path in site.rglob("*.html")}
    assert [path for path, size in sizes.items() if size >= MOST_BYTES] == []


def test_the_site_cache_has_no_curves_and_pages_show_them(store, tmp_path):
    memory, _ = built(store, tmp_path / "site")
    entries = memory.entries(store)
    assert all(one.curved for one in entries)
    assert not any(run.curve for one in entries for run in one.runs)
    script = next((tmp_path / "site" / "runs").glob("*.js")).read_text()
    assert '"step":[1,2,3' in script


def test_a_receipt_holds_runs_as_they_are_on_record_and_is_signed_once(store, tmp_path):
    key, site = signing.make_key(tmp_path / "key.pem"), tmp_path / "site"
    drawn = build(store, site, key=key).drawn
    signed = {path for path in drawn if path.startswith("api/signed/executions/")}
    assert len(signed) == EXECUTIONS
    for path in signed:
        receipt = json.loads((site / path).read_bytes())["record"]
        for name, run in receipt["runs"].items():
            told = store.require(f"records/runs/{receipt['execution']['id']}.{name}.json")
            assert run == json.loads(told)
            assert run["curve"]
    again = build(Store(store.root), site, key=key).drawn
    assert [path for path in again if path.startswith("api/signed/")] == []
