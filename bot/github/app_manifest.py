"""The lab's GitHub App: its permissions and events, and what each is for.

The manifest is made from this table, `regatta doctor` compares an installation with it, and
docs/permissions.md explains it.
"""

from typing import Any

# Permission → level and purpose. `read` is enough where nothing is ever written.
PERMISSIONS: dict[str, tuple[str, str]] = {
    "metadata": ("read", "who somebody is here: roles are asked for when they matter"),
    "contents": ("write", "reads declarations, keeps pictures, copies records to a branch"),
    "issues": ("write", "comments, reactions, and the one label of an experiment"),
    "pull_requests": ("write", "reads heads, reviews and commits; comments on pull requests"),
    "checks": ("write", "the plan's check and one for each execution, with their buttons"),
}
# Event → what it reports.
EVENTS: dict[str, str] = {
    "issues": "preregistrations, and what becomes of them",
    "issue_comment": "commands",
    "pull_request": "declarations and pushes",
    "pull_request_review": "approving reviews whose words hold a command, and dismissals",
    "check_run": "the buttons Cancel, Retry and Re-plan",
    "repository": "that the repository was renamed, transferred or made private",
}


def manifest(name: str, url: str) -> dict[str, Any]:
    """The content of GitHub's form for a new App; `url` is the bot's URL, without a path."""
    url = url.rstrip("/")
    return {
        "name": name,
        "url": url,
        "description": "Plans, runs and reports the experiments of an open lab.",
        "hook_attributes": {"url": f"{url}/webhook", "active": True},
        "public": False,
        "default_permissions": {key: level for key, (level, _) in PERMISSIONS.items()},
        "default_events": sorted(EVENTS),
    }


def lacking(granted: dict[str, str]) -> dict[str, str]:
    """The permissions that an installation lacks, each with the level it needs."""
    ranks = {"": 0, "read": 1, "write": 2, "admin": 3}
    return {
        name: level
        for name, (level, _) in PERMISSIONS.items()
        if ranks.get(granted.get(name, ""), 0) < ranks[level]
    }


def needless(granted: dict[str, str]) -> dict[str, str]:
    """The permissions that an installation has and the lab does not need."""
    return {name: level for name, level in granted.items() if name not in PERMISSIONS}
