"""Of `test_many.py` what needs a process, a socket or a compilation."""

import json

import pytest

from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_many import MOST_BYTES, SHARED
from tests.unit.site.test_many import store as store  # a fixture


@pytest.mark.slow
def test_with_ten_thousand_runs_no_kind_of_page_has_300_kilobytes(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "create", synthetic.create_at_once)
    synthetic.board(Store(tmp_path / "store"), 1667)
    site = tmp_path / "site"
    build(Store(tmp_path / "store"), site)
    board = json.loads((site / "api" / "leaderboard.json").read_bytes())
    assert sum(len(group["rows"]) for group in board["groups"]) == 3334
    shared = sum((site / name).stat().st_size for name in SHARED)
    pages = {path: path.stat().st_size + shared for path in site.rglob("*.html")}
    assert [path for path, size in pages.items() if size >= MOST_BYTES] == []
