"""The pages on public figures show every error and every finding."""

import json
from pathlib import Path

import pytest

from bot.site.pages import public, templating
from bot.site.pages.build import build
from runner.analysis import public_boards, speedrun_file
from runner.store.store import Store
from tests.unit.site.test_pages import Page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(Store(folder / "store"), folder / "site")
    return folder / "site"


def test_every_error_is_shown_and_the_medians(site: Path) -> None:
    text = Page(site / "scaling.html").text
    for axis, (name, _) in public.AXES.items():
        board = public_boards.tested(axis)
        assert name in text
        assert f"{100 * board.median_pooled:.1f} % with the common floor" in text
        for group in board.groups:
            assert templating.signed(group.pooled) in text
    assert public_boards.source() in text
    twin = json.loads((site / "api" / "scaling.json").read_bytes())
    assert len(twin["model_flops"]["groups"]) == 18


def test_every_finding_is_shown_with_its_reason(site: Path) -> None:
    text = Page(site / "audit.html").text
    findings = speedrun_file.audit_rows(public_boards.rows())
    for finding in findings:
        assert finding.words.replace("experiments/speedrun/", "") in text
    rules = Page(site / "entries.html").text  # they stand once
    assert 'href="entries.html#rules"' in (site / "audit.html").read_text()
    for rule in speedrun_file.RULES.values():
        assert rule.words in rules
    twin = json.loads((site / "api" / "audit.json").read_bytes())
    assert len(twin) == len(findings)


def test_a_relative_error_has_a_sign_and_zero_has_none() -> None:
    assert [templating.signed(x) for x in (0.0123, -0.0123, -0.00001)] == [
        "+1.23 %",
        "−1.23 %",
        "0.00 %",
    ]


@pytest.mark.parametrize(
    ("error", "bar"),
    [
        (0.0, "--a:50.0%;--b:0.0%"),
        (0.02, "--a:50.0%;--b:25.0%"),
        (-0.02, "--a:25.0%;--b:25.0%"),
        (9.0, "--a:50.0%;--b:50.0%"),
    ],
)
def test_a_bar_begins_in_the_middle_and_stays_on_its_scale(error: float, bar: str) -> None:
    assert public.error_bar(error) == bar
