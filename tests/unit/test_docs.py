"""What the documentation names is there: tests, files, permissions, options."""

import re
from pathlib import Path

import pytest

from bot.github import app_manifest
from bot.setup import settings
from bot.telemetry import metrics

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("docs/*.md"))


def names_of_tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def test_each_test_that_a_page_names_exists() -> None:
    there = names_of_tests()
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in re.findall(r"`(test_\w+)`", page.read_text())
        if name not in there
    ]
    assert not missing, "\n".join(missing)


def test_each_promise_of_the_security_page_names_a_test() -> None:
    page = (ROOT / "docs/security.md").read_text()
    promised, _, _ = page.partition("## What is not promised")
    rows = [line for line in promised.splitlines() if re.match(r"\| (?!---|promise \|)", line)]
    assert len(rows) >= 25
    assert all("`test_" in row or "`tests/" in row for row in rows)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_each_file_that_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_page_of_permissions_says_what_the_manifest_asks_for() -> None:
    page = (ROOT / "docs/permissions.md").read_text()
    levels = {"read": "Read-only", "write": "Read and write"}
    app, _, _ = page.partition("## How it signs in")
    told = re.findall(r"^\| ([A-Z][a-z ]+) \| (Read-only|Read and write) \|", app, re.MULTILINE)
    asked = {
        name.replace("_", " ").capitalize(): levels[level]
        for name, (level, _) in app_manifest.PERMISSIONS.items()
    }
    assert dict(told) == asked
    for event in app_manifest.EVENTS:
        assert f"| {event.replace('_', ' ').capitalize()} |" in app


def test_the_page_of_installing_names_the_figures_and_variables_there_are() -> None:
    page = (ROOT / "docs/install.md").read_text()
    figures = {family.name for family in metrics.REGISTRY.collect()}
    for name in re.findall(r"`(regatta_[a-z_]+)", page):
        assert name.removesuffix("_total") in figures, name
    for name in (settings.SECRET, settings.OLD_SECRET, settings.APP_KEY):
        assert f"`{name}_FILE`" in page
