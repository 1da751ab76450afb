"""`regatta init`: what it shows, what it writes, and what it leaves alone."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bot.cli.main import app
from bot.model.policy_file import PATH
from bot.setup import init
from runner.schema import lab_config

ROOT = Path(__file__).parents[3]
run = CliRunner().invoke


def test_this_repository_is_set_up_as_init_sets_one_up() -> None:
    for file in init.planned(ROOT, init.files("server")):
        if file.path.startswith(".github/"):
            assert file.state == "same", file.difference


def test_init_writes_form_template_policy_and_workflows(tmp_path: Path) -> None:
    told = run(app, ["init", str(tmp_path), "--mode", "actions", "--yes"])
    assert told.exit_code == 0, told.output
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {
        *lab_config.FILES,
        ".github/ISSUE_TEMPLATE/experiment.yml",
        ".github/PULL_REQUEST_TEMPLATE.md",
        ".github/workflows/regatta.yml",
        ".github/workflows/regatta-doctor.yml",
        ".github/workflows/regatta-pages.yml",
    }


def test_init_shows_everything_before_it_asks_and_writes_nothing_after_a_no(tmp_path: Path) -> None:
    told = run(app, ["init", str(tmp_path)], input="n\n" * 10)
    assert told.output.index("settle_seconds: 30") < told.output.index(
        "Write .github/regatta/policy.yml?"
    )
    assert not list(tmp_path.iterdir())


def test_init_writes_what_somebody_says_yes_to(tmp_path: Path) -> None:
    run(app, ["init", str(tmp_path)], input="y\nn\nn\nn\n")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["policy.yml"]


def test_init_never_replaces_a_file_that_differs_unasked(tmp_path: Path) -> None:
    policy = tmp_path / PATH
    policy.parent.mkdir(parents=True)
    policy.write_text("commands: {run: {people: [grace]}}\n")
    told = run(app, ["init", str(tmp_path), "--yes"])
    assert told.exit_code == 0
    assert policy.read_text() == "commands: {run: {people: [grace]}}\n"
    assert "-commands: {run: {people: [grace]}}" in told.output
    assert f"{PATH}: not changed." in told.output
    run(app, ["init", str(tmp_path), "--yes", "--replace"])
    assert policy.read_text() == init.files("server")[PATH].text


def test_init_again_changes_nothing(tmp_path: Path) -> None:
    run(app, ["init", str(tmp_path), "--yes"])
    told = run(app, ["init", str(tmp_path)])
    assert told.exit_code == 0
    assert "is written" not in told.output


def test_a_link_in_the_place_of_a_file_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).symlink_to(tmp_path / "elsewhere")
    told = run(app, ["init", str(tmp_path), "--yes"])
    assert told.exit_code == 2
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("runner", ["x\n    permissions: write-all", "${{ github.actor }}", ""])
def test_a_runner_that_would_say_more_than_one_value_is_refused(runner: str) -> None:
    with pytest.raises(init.BadChoice, match="not a runner"):
        init.files("actions", runner=runner)


def test_a_hosted_runner_installs_the_package_that_is_named() -> None:
    package = "regatta @ git+https://example.org/regatta@0123456789012345678901234567890123456789"
    text = init.files("actions", runner="ubuntu-24.04", package=package)[
        ".github/workflows/regatta.yml"
    ].text
    steps = yaml.safe_load(text)["jobs"]["handle"]["steps"]
    assert [step["name"] for step in steps] == ["Install Regatta", "Handle"]
    assert steps[0]["env"]["PACKAGE"] == package


def test_the_manifest_asks_for_no_more_than_the_table_says() -> None:
    made = json.loads(init.files("server", url="https://lab.example.org/")["regatta-app.json"].text)
    assert made["hook_attributes"]["url"] == "https://lab.example.org/webhook"
    assert made["default_permissions"] == {
        "metadata": "read",
        "contents": "write",
        "issues": "write",
        "pull_requests": "write",
        "checks": "write",
    }
    assert not made["public"]


@pytest.mark.parametrize("name", ["tracks.yml", "devices.yml"])
def test_a_commented_start_ends_with_the_packages_default(name: str) -> None:
    default = (lab_config.DEFAULTS / name).read_text().splitlines()
    start = (init.STARTER / name).read_text().splitlines()
    assert all(line.startswith("#") for line in start)
    rest = default[next(n for n, x in enumerate(default) if x.startswith(("cpu:", "data:"))) :]
    assert start[-len(rest) :] == [f"# {line}" for line in rest]
