"""Of `test_data.py` what needs a process, a socket or a compilation."""

import shutil
from pathlib import Path

import pytest

from bot.site.facts.lab import read_lab
from bot.site.facts.outputs import outputs
from bot.site.pages import step_output
from bot.site.pages.build import build
from engine.data.token_store import TokenStore
from runner.store import gcs
from runner.store.store import Store, StoreError
from tests import fake_gcs, synthetic
from tests.unit.site.test_data import PAGE, drawn_page, execute, lines, made
from tests.unit.site.test_data import built as built  # a fixture
from tests.unit.site.test_data import store as store  # a fixture
from tests.unit.site.test_pages import Page


def test_the_pages_of_an_execution_of_a_run_and_of_later_steps_link_to_it(store, tmp_path):
    def tokens(folder):
        TokenStore.build(folder / "train", ["to be decoded"])

    later = made(store, tokens, synthetic.sha("tokens"), "texts.tokenize")
    execution = execute(store, {"text": made(store, lines("a")), "tokens": later})
    plan = synthetic.plan()
    plain = synthetic.execution(plan, "2")
    synthetic.finish(store, plain, synthetic.PLAIN)
    build(store, tmp_path / "site")
    site = tmp_path / "site"
    assert f"../../{PAGE}" in Page(site / "executions" / execution.id / "index.html").links
    assert f"../{PAGE}" in Page(site / "runs" / f"{execution.id}.fast.s0.html").links
    of_tokens = Page(site / "data" / f"{synthetic.sha('tokens')[:16]}.html")
    assert f"../{PAGE}" in of_tokens.links
    assert "t o b e d e c o d e d" in " ".join(of_tokens.text.split())
    assert "The first 13 of 13 tokens of 1 document" in of_tokens.text


def test_one_part_that_breaks_its_reader_hides_no_other(built):
    def write(folder):
        lines("a good line")(folder)
        (folder / "rows.parquet").write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")

    text = built(write).text
    assert "a good line" in text
    assert "rows.parquet Not shown: it is no Parquet file, or damaged" in text


def test_a_page_is_drawn_out_of_a_bucket_by_ranges(tmp_path, monkeypatch):
    with fake_gcs.serving() as fake:
        fake.buckets["bucket"] = {}
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
        store = Store("gs://bucket/lab")

        def write(folder: Path) -> None:
            lines("from a bucket")(folder)
            (folder / "more.jsonl").write_text('{"text": "b"}\n' * 100_000)

        end = made(store, write)
        shutil.rmtree(tmp_path / "cache")
        execute(store, {"text": end})
        assert "from a bucket" in drawn_page(store, tmp_path).text
        assert not (tmp_path / "cache").exists()
        # A bucket that is out of reach is no fault of the output's, and no page says so for ever.
        (one,) = outputs(read_lab(store)).values()
        monkeypatch.setattr(gcs, "RETRY", gcs.RETRY.with_timeout(0.3))
        fake.trouble("download", "refused", status=503, times=1000)
        with pytest.raises(StoreError):
            step_output.find(one, store)
