"""The workflows of Actions mode: what starts them, what they may do, and what zizmor says."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.inbox import payloads
from bot.setup import init
from runner.schema import lab_config

HOSTED = "regatta @ git+https://example.org/regatta@0123456789012345678901234567890123456789"
CHOICES = {
    "self-hosted": init.files("actions"),
    "hosted": init.files("actions", runner="ubuntu-24.04", package=HOSTED),
}


def workflows(choice: str) -> dict[str, str]:
    return {
        path: file.text for path, file in CHOICES[choice].items() if path.startswith(".github/work")
    }


def parsed(choice: str, name: str = "regatta.yml") -> Any:
    # BaseLoader, since YAML 1.1 takes the key `on` for true.
    text = workflows(choice)[f".github/workflows/{name}"]
    return yaml.load(text, Loader=yaml.BaseLoader)


@pytest.mark.parametrize("choice", CHOICES)
def test_nothing_is_checked_out_but_what_the_lab_decides_on_its_default_branch(choice: str) -> None:
    for path, text in workflows(choice).items():
        if not path.endswith("/regatta-pages.yml"):
            assert "uses:" not in text
            assert "checkout" not in text
    steps = parsed(choice, "regatta-pages.yml")["jobs"]["draw"]["steps"]
    (taken,) = [step["with"] for step in steps if "checkout" in step.get("uses", "")]
    assert taken == {
        "persist-credentials": "false",
        "ref": "${{ github.event.repository.default_branch }}",
        "sparse-checkout": lab_config.FOLDER,
    }


@pytest.mark.parametrize("choice", CHOICES)
def test_publishing_uses_three_actions_of_githubs_each_pinned_to_a_commit(choice: str) -> None:
    jobs = parsed(choice, "regatta-pages.yml")["jobs"].values()
    used = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
    pinned = [re.fullmatch(r"(actions/[a-z-]+)@[0-9a-f]{40}", name) for name in used]
    assert [found and found[1] for found in pinned] == [
        "actions/checkout",
        "actions/upload-pages-artifact",
        "actions/deploy-pages",
    ]


@pytest.mark.parametrize("choice", CHOICES)
def test_the_site_is_drawn_with_one_permission_and_published_with_two(choice: str) -> None:
    pages = parsed(choice, "regatta-pages.yml")
    assert pages["permissions"] == {}
    assert pages["jobs"]["draw"]["permissions"] == {"contents": "read"}
    assert pages["jobs"]["publish"]["permissions"] == {"id-token": "write", "pages": "write"}


def test_the_site_is_published_after_the_lab_did_something_and_blocks_nothing() -> None:
    pages, handle = parsed("self-hosted", "regatta-pages.yml"), parsed("self-hosted")
    assert pages["on"]["workflow_run"] == {"workflows": [handle["name"]], "types": ["completed"]}
    assert pages["concurrency"]["group"] != handle["concurrency"]["group"]
    assert set(handle["jobs"]) == {"handle"}
    assert "secrets." not in workflows("self-hosted")[".github/workflows/regatta-pages.yml"]


@pytest.mark.parametrize("choice", CHOICES)
def test_nothing_of_an_event_stands_in_a_command_line(choice: str) -> None:
    for path in workflows(choice):
        for job in parsed(choice, Path(path).name)["jobs"].values():
            for step in job["steps"]:
                assert "${{" not in step.get("run", "")
                assert "github.event" not in str(step.get("env"))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_workflow_has_no_permission_and_its_job_only_what_is_needed(choice: str) -> None:
    handle = parsed(choice)
    assert handle["permissions"] == {}
    assert handle["jobs"]["handle"]["permissions"] == {
        "checks": "write",
        "contents": "write",
        "issues": "write",
        "pull-requests": "write",
    }
    doctor = parsed(choice, "regatta-doctor.yml")
    assert doctor["permissions"] == {}
    assert set(doctor["jobs"]["doctor"]["permissions"].values()) == {"read"}


def test_actions_hears_the_events_that_a_server_hears() -> None:
    heard = {event: set(actions) for event, actions in payloads.HEARD.items()}
    listened = parsed("self-hosted")["on"]
    for event, name in (
        ("issues", "issues"),
        ("issue_comment", "issue_comment"),
        ("pull_request", "pull_request_target"),
    ):
        assert heard[event] <= set(listened[name]["types"]), event
    assert "schedule" in listened  # reviews are found by it; buttons are a server's


def test_one_invocation_at_a_time_and_none_is_cut_off() -> None:
    assert parsed("self-hosted")["concurrency"] == {
        "group": "regatta",
        "cancel-in-progress": "false",
    }
