"""Compiled templates on disk save time, and nothing depends on them."""

import shutil
from itertools import count
from pathlib import Path

import jinja2
import pytest
from jinja2.bccache import bc_magic

from bot.site.base import files
from bot.site.pages import templating
from bot.site.pages.templating import MISSING, look

LABS = (f"Lab {n}" for n in count())  # each loads its templates anew


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where they are kept."""
    monkeypatch.setattr(templating, "COMPILED", tmp_path / "__pycache__")
    return tmp_path / "__pycache__"


def is_drawn() -> bool:
    return look(next(LABS)).render(MISSING, MISSING).startswith("<!doctype html>")


def test_templates_are_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_drawn()
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert is_drawn()
    shutil.rmtree(folder)
    with pytest.raises(TypeError):
        is_drawn()


def test_a_broken_compiled_template_is_compiled_again(folder: Path) -> None:
    assert is_drawn()
    one = next(folder.iterdir())
    right = one.read_bytes()
    for broken in (b"", bc_magic, bc_magic + b"garbage", right[:-9]):
        one.write_bytes(broken)
        assert is_drawn()
        assert one.read_bytes() == right


def test_templates_are_compiled_each_time_if_they_cannot_be_kept(folder: Path) -> None:
    folder.write_text("a file in its place")
    assert is_drawn()


def test_compiled_templates_are_no_part_of_the_labs_code() -> None:
    before = files.edition()
    look(next(LABS)).render(MISSING, MISSING)
    assert list(templating.COMPILED.glob("*.pyc"))
    files.edition.cache_clear()
    assert files.edition() == before
