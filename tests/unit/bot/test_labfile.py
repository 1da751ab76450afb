"""`.github/regatta/policy.yml`: what it permits, and what is said of one that is wrong."""

from pathlib import Path
from typing import get_args

import pytest

from bot.model import policy_file
from bot.model.policy_file import OLD_PATH, PATH, Policy
from tests.decided import KINDS

SHA = "f" * 40
ROOT = Path(__file__).parents[3]


def parse(text: str | None) -> Policy:
    return policy_file.parse({} if text is None else {PATH: text.encode()}, SHA, KINDS)


def test_the_file_of_this_repository_is_one() -> None:
    policy = policy_file.parse({PATH: (ROOT / PATH).read_bytes()}, SHA, KINDS)
    assert policy.problems == ()
    assert policy.sha == SHA
    assert policy.permits("run", "grace", "maintain")


@pytest.mark.parametrize(
    "name",
    [
        *("Maintainers", "writer", "maintain2", "Security Champions"),
        "repo-owners",  # integrations/terraform-provider-github#1775
        "write-with-bypass",  # sigstore/community#401
        "Triage +1",  # github/rest-api-description#564: any name, of no list
    ],
)
def test_an_organizations_own_role_is_named_whatever_it_is_called(name: str) -> None:
    """github/gh-aw#45536, #50068."""
    policy = parse(f"commands:\n  run: {{roles: [custom/{name}]}}\n")
    assert policy.problems == ()
    assert policy.permits("run", "ada", name)
    assert not policy.permits("run", "ada", "maintain")


def test_roles_and_people_are_permitted_one_command_each() -> None:
    policy = parse(
        "commands:\n  run: {roles: [admin], people: [Grace]}\n  cancel: {roles: [write]}"
    )
    assert policy.permits("run", "hugo", "admin")
    assert policy.permits("run", "grace", "none")
    assert not policy.permits("run", "hugo", "maintain")
    assert policy.permits("cancel", "hugo", "write")
    assert not policy.permits("cancel", "grace", "none")
    assert policy.permits("retry", "hugo", "maintain")
    assert not policy.permits("retry", "hugo", "write")


def test_everything_that_can_be_said_is_read() -> None:
    policy = parse(
        "settle_seconds: 60\nown: false\ntwo_approvers_from: 1.5\n"
        'device_hours_per_person_and_month: {"*": 10, cpu: 2}\nkinds: [cpu]\n'
        "hours_without_estimate: 2\n"
    )
    assert policy.problems == ()
    assert (policy.settle_seconds, policy.own, policy.two_approvers_from) == (60, False, 1.5)
    assert policy.device_hours_per_person_and_month == {"*": 10, "cpu": 2}
    assert policy.kinds == ("cpu",)
    assert policy.hours_without_estimate == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "there is no .github/regatta/policy.yml on the default branch"),
        ("", "line 1: it is empty"),
        ("- run\n", "line 1: it must be a mapping"),
        ("own: true\nsettle_second: 5\n", "line 2, `settle_second`: unknown key; did you mean"),
        ("settle_seconds: 0\n", "line 1, `settle_seconds`: it should be greater than"),
        ("settle_seconds: soon\n", "line 1, `settle_seconds`: must be a whole number"),
        ("commands:\n  rum: {}\n", "line 2, `commands.rum`: must be `run`, `cancel`"),
        ("commands:\n  run: {role: [x]}\n", "line 2, `commands.run.role`: unknown key; did you"),
        ("commands:\n  run: {roles: [maintainer]}\n", "did you mean `maintain`?"),
        ("commands:\n  run: {roles: [none]}\n", "no role is `none`"),
        ("commands:\n  run: {roles: [writer]}\n", "write `custom/writer`"),
        ("commands:\n  run: {people: ['@grace']}\n", "write the login without its `@`"),
        ("commands:\n  run:\n    people:\n    - ''\n", "line 4, `commands.run.people.0`: must"),
        ("kinds: [h1000]\n", "the lab knows no hardware `h1000`; it has `cpu`, `h100`"),
        ("device_hours_per_person_and_month: {gpu: 1}\n", "the lab knows no hardware `gpu`"),
        ("hours_without_estimate: 1e308\n", "`hours_without_estimate`: it should be less than or"),
        ("two_approvers_from: -1\n", "line 1, `two_approvers_from`: it should be greater than"),
        ("two_approvers_from: .inf\n", "line 1, `two_approvers_from`: must be a number"),
        ("two_approvers_from: 1e999\n", "line 1, `two_approvers_from`"),
        ("own: !!python/object:os.system {}\n", "line 1: the tag"),
        ("own: true\nown: false\n", "line 2, `own`: this key is here twice"),
        ("own: &a true\nx: *a\n", "line 2: an alias"),
        ("own: [\n", "it is not YAML"),
    ],
)  # fmt: skip
def test_a_file_that_is_missing_or_wrong_permits_nothing_but_to_stop_and_says_why(
    text: str | None, problem: str
) -> None:
    policy = parse(text)
    assert problem in policy.problems[0]
    for command in get_args(policy_file.Command):
        assert policy.permits(command, "grace", "admin") == (command == "cancel")
    assert not policy.permits("cancel", "ada", "write")


def test_a_file_that_is_no_text_permits_nobody_anything() -> None:
    assert "it is not UTF-8 text" in policy_file.parse({PATH: b"\xff\xfe"}, SHA, KINDS).problems[0]


def test_a_policy_at_its_old_path_counts_for_nothing_and_the_new_path_is_named() -> None:
    policy = policy_file.parse({OLD_PATH: b"own: true\n"}, SHA, KINDS)
    (problem,) = policy.problems
    assert f"git mv {OLD_PATH} {PATH}" in problem
    assert not policy.permits("run", "grace", "admin")
