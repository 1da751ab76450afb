"""Titles that are written from right to left, or that try to turn what stands around them
(NodeBB/NodeBB#4378, savetheinternet/Tinyboard#114)."""

import re
from pathlib import Path

import pytest

from bot.model.escape import isolated
from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic

ENDS = "\u202a\u202b\u202d\u202e\u2066\u2067\u200e\u200f\u061c"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Warmer \u202erates", "\u2068Warmer \\u202erates\u2069"),
        ("ends \u2069 early \u202c", "\u2068ends \\u2069 early \\u202c\u2069"),
        ("هل يساعد؟", "\u2068هل يساعد؟\u2069"),
        ("האם זה עוזר?", "\u2068האם זה עוזר?\u2069"),
        ("a line\nthen \u202e", "\u2068a line\nthen \\u202e\u2069"),
        # jmrGrav/mcp-hugo-server-go#1158, microsoft/terminal#2409
        ("harmless_file\u202etxt.exe", "\u2068harmless_file\\u202etxt.exe\u2069"),
        # spencermountain/out-of-character#90
        ("\u2066a\u2067b", "\u2068\\u2066a\\u2067b\u2069"),
        # forem/forem#16001: what is written from right to left stays as it is
        ("שלום Majima! מה שלומך?", "\u2068שלום Majima! מה שלומך?\u2069"),
        ("Größe · 漢字 · 👩‍🔬", "Größe · 漢字 · 👩‍🔬"),
        (3.5, 3.5),
        (None, None),
    ],
)
def test_a_text_keeps_its_direction_to_itself(text: object, shown: object) -> None:
    assert isolated(text) == shown


def test_no_page_has_a_title_that_turns_its_neighbours(tmp_path: Path) -> None:
    store, title = Store(tmp_path / "store"), "Is \u202eemraw\u202c better? שלום"
    synthetic.preregister(store, 1)
    plan = synthetic.plan(title=title, preregistration=1)
    synthetic.finish(store, synthetic.execution(plan), synthetic.PLAIN)
    synthetic.execution(synthetic.plan(title=title), "queued", pull=3)
    build(store, tmp_path / "www", lab=title)
    pages = [p for p in (tmp_path / "www").rglob("*") if p.suffix in (".html", ".xml", ".svg")]
    shown = 0
    for page in pages:
        text = page.read_text()
        assert not re.search(f"[{ENDS}]", text), page
        shown += text.count("emraw")
        alone = re.sub("\u2068[^\u2068\u2069]*\u2069", "", text)
        assert "שלום" not in alone, f"{page}: {alone[max(0, alone.find('שלום') - 80) :][:160]}"
    assert shown > 10
