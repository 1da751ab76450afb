"""What cannot be seen is not the author's mistake."""

import pytest

from tests.reports.github.github_lab import FILES, checks, count, open_issue, open_pull, plans
from tests.scenarios.lab import EXPERIMENT, Lab

DOCS = {f"docs/part-{n % 8}/{n}.md": b"Words.\n" for n in range(320)}


def propose(lab: Lab, files: dict[str, bytes]) -> str:
    """Ada's pull request, when the bot has looked at it."""
    head = lab.sandbox.commit("ada", "warm", files, "Many files")
    lab.sandbox.open_pull("ada", "Many files", "Tests #1.", "warm")
    lab.settle()
    return head


def has_one_plan(lab: Lab, head: str) -> bool:
    ok = checks(lab) == [("regatta / plan", "success")]
    return ok and plans(lab) == [head] and count(lab, "### Plan 1: Does") == 1


@pytest.fixture
def registered(lab: Lab) -> Lab:
    open_issue(lab)
    lab.settle()
    return lab


@pytest.mark.parametrize("files", [299, 300, 320])
def test_go_utils_492_a_large_change_of_the_documentation_is_none_of_the_labs_business(
    registered: Lab, files: int
) -> None:
    propose(registered, dict(list(DOCS.items())[:files]))
    assert registered.comments(2) == []
    assert checks(registered) == []


def test_gemini_ai_code_reviewer_51_an_experiment_among_more_than_300_files_is_planned(
    registered: Lab,
) -> None:
    assert has_one_plan(registered, propose(registered, DOCS | FILES))


def test_vscode_pull_request_github_1613_an_experiment_of_1907_files_is_planned(
    registered: Lab,
) -> None:
    parts = {f"experiments/warm/data/{n}.txt": b"A line.\n" for n in range(1905)}
    assert has_one_plan(registered, propose(registered, parts | FILES))


def test_azure_rest_api_specs_45800_an_experiment_among_3100_files_is_planned(
    registered: Lab,
) -> None:
    docs = {f"docs/{n}.md": b"Words.\n" for n in range(3_100)}
    assert has_one_plan(registered, propose(registered, docs | FILES))


def test_two_experiments_among_many_files_are_named(registered: Lab) -> None:
    other = {"experiments/cold/experiment.yaml": EXPERIMENT.encode()}
    propose(registered, DOCS | FILES | other)
    assert count(registered, "this one touches `cold`, `warm`") == 1


# ── Repositories whose tree is truncated ──


@pytest.fixture
def large(registered: Lab) -> Lab:
    """A repository whose tree GitHub does not list at once."""
    many = {f"data/{n % 5}/{n}.txt": b"x" for n in range(60)}
    registered.sandbox.commit("grace", "main", many, "Much")
    registered.sandbox.world.max_tree = 40
    registered.settle()
    return registered


def test_seer_2220_an_experiment_in_a_repository_whose_tree_is_truncated_is_planned(
    large: Lab,
) -> None:
    assert has_one_plan(large, propose(large, FILES))


def test_repo_lyzer_322_many_files_in_a_large_repository_are_none_of_the_labs_business(
    large: Lab,
) -> None:
    propose(large, DOCS)
    assert large.comments(2) == []
    assert checks(large) == []


def test_test_reporter_68_an_experiment_among_many_files_in_a_large_repository_is_planned(
    large: Lab,
) -> None:
    assert has_one_plan(large, propose(large, DOCS | FILES))


def test_magpie_1282_a_folder_that_is_left_out_of_the_list_is_found(
    large: Lab,
) -> None:
    open_pull(large)
    large.settle()
    assert count(large, "### Plan 1: Does") == 1


def test_a_folder_with_more_files_than_github_lists_is_said_to_be_so_and_nobody_is_blamed(
    large: Lab,
) -> None:
    propose(large, FILES | {f"experiments/warm/data/{n}.txt": b"x" for n in range(60)})
    assert count(large, "experiments/warm has more files than GitHub lists") == 1
    assert count(large, "Push a correction") == 0
    assert checks(large) == [("regatta / plan", "neutral")]
