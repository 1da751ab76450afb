"""What the documentation names is there: tests, files, permissions, commands, options."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from bot.cli.main import app
from bot.github import app_manifest
from bot.setup import init, settings
from bot.telemetry import metrics
from docs import generate
from tests.documented import PAGES, WRITTEN, blocks

ROOT = Path(__file__).parents[2]


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


REPORTS = {path.parent.name: path for path in sorted(ROOT.glob("tests/reports/*/README.md"))}


@pytest.mark.parametrize("area", REPORTS)
def test_each_public_report_has_a_test_that_names_it_and_at_least_three_others_of_its_kind(
    area: str,
) -> None:
    page = REPORTS[area].read_text()
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| [0-9]+ \|", line)]
    assert len(rows) >= (24 if area == "github" else 1)
    for row, _, tests, reports in rows:
        sources = ""
        for path, name in re.findall(r"`(tests/[^`:]+)::(test_\w+)`", tests):
            source = (ROOT / path).read_text()
            assert f"def {name}(" in source, f"{row}: {path} has no {name}"
            fixtures = (ROOT / path).with_name("conftest.py")
            sources += source + (fixtures.read_text() if fixtures.is_file() else "")
        named = re.findall(r"([\w./-]+)#([0-9]+)", reports)
        assert len(named) >= 4, f"{row}: {reports}"
        for repository, number in named:
            known = rf"#{number}\b|test_\w+_{number}_"
            assert re.search(known, sources), f"{row}: no test names {repository}#{number}"


def test_each_promise_of_the_security_page_names_a_test() -> None:
    page = (ROOT / "docs/security.md").read_text()
    promised, _, _ = page.partition("## What is not promised")
    rows = [line for line in promised.splitlines() if re.match(r"\| (?!---|promise \|)", line)]
    assert len(rows) >= 25
    assert all("`test_" in row or "`tests/" in row for row in rows)


def test_the_readme_is_read_in_three_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_file_and_heading_that_a_page_links_to_is_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)", text):
        name, _, heading = link.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), link
        assert not heading or heading in headings(there), link


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in found}


def test_generated_docs_match_the_schemas_and_commands() -> None:
    stale = [path for path, text in generate.files().items() if path.read_text() != text]
    assert not stale, "run `make docs` and commit what it writes"


SHOWN = sorted(
    {line for page in WRITTEN for block in blocks(page) for line in block.commands}
    | {line for page in WRITTEN for line in re.findall(r"`(regatta [^`\n]+)`", page.read_text())}
)


@pytest.mark.parametrize("line", [line for line in SHOWN if line.startswith("regatta ")])
def test_the_command_line_takes_each_command_that_a_page_shows(line: str) -> None:
    command, words = get_command(app), shlex.split(line.replace("…", ""))[1:]
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, line
        command = command.commands[name]
    options = {option for one in command.params for option in one.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= {
        *options,
        "--help",
    }


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
    page = (ROOT / "docs/run-a-lab.md").read_text()
    figures = {family.name for family in metrics.REGISTRY.collect()}
    for name in re.findall(r"`(regatta_[a-z_]+)", page):
        assert name.removesuffix("_total") in figures, name
    for name in (settings.SECRET, settings.OLD_SECRET, settings.APP_KEY):
        assert f"`{name}_FILE`" in page


# ── This repository on GitHub ────────────────────────────────────────────────────────────────


def test_githubs_ci_runs_what_ci_runs_here() -> None:
    workflow = yaml_of(".github/workflows/ci.yml")
    steps = [step.get("run", "") for step in workflow["jobs"]["test"]["steps"]]
    here = re.findall(r"^make .*$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert [step for step in steps if step.startswith("make ")] == here


def test_the_labs_own_loop_is_the_workflow_that_init_writes() -> None:
    written = init.files("actions")[".github/workflows/regatta.yml"].text
    assert (ROOT / ".github/workflows/lab.yml").read_text() == written


def test_every_action_is_pinned_by_its_full_commit_with_its_version_beside_it() -> None:
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        for line in path.read_text().splitlines():
            if "uses:" in line:
                assert re.search(r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def yaml_of(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())
