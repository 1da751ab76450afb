"""The lab's GitHub App: which permissions it has, which events it hears, and what each is for.

One table, from which the manifest is made, against which `regatta doctor` holds an installation,
and which docs/permissions.md explains.
"""

from typing import Any

# Permission → level and what it is for. `read` is enough where nothing is ever written.
PERMISSIONS: dict[str, tuple[str, str]] = {
    "metadata": ("read", "who somebody is here: roles are asked for when they matter"),
    "contents": ("write", "reads declarations, keeps pictures, copies records to a branch"),
    "issues": ("write", "comments, reactions, and the one label of an experiment"),
    "pull_requests": ("write", "reads heads, reviews and commits; comments on pull requests"),
    "checks": ("write", "the plan's check and one for each execution, with their buttons"),
}
# Event → what it tells.
EVENTS: dict[str, str] = {
    "issues": "preregistrations, and what becomes of them",
    "issue_comment": "commands",
    "pull_request": "declarations and pushes",
    "pull_request_review": "approving reviews whose words hold a command, and dismissals",
    "check_run": "the buttons Cancel, Retry and Re-plan",
    "repository": "that the repository was renamed, transferred or made private",
}


def manifest(name: str, url: str) -> dict[str, Any]:
    """What GitHub's form for a new App takes; `url` is where the bot answers, without a path."""
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
    """The permissions that an installation has and the lab has no use for."""
    return {name: level for name, level in granted.items() if name not in PERMISSIONS}
