"""The world as GitHub's JSON: people, the App, the repository.

Threads are in `shapes_thread.py`, commits and check runs in `shapes_code.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bot.fake_github.world.state import User, World, stamp

Json = dict[str, Any]


def node_id(kind: str, number: int | str) -> str:
    return base64.b64encode(f"0{len(kind)}:{kind}{number}".encode()).decode()


def ids(kind: str, id: int) -> Json:
    return {"id": id, "node_id": node_id(kind, id)}


def dates(created: datetime, updated: datetime | None = None) -> Json:
    return {"created_at": stamp(created), "updated_at": stamp(updated or created)}


def time(at: datetime | None) -> str | None:
    return stamp(at) if at else None


def repo_api(world: World) -> str:
    return f"{world.api}/repos/{world.full_name}"


# People

_OF_A_USER = {
    "followers": "/followers", "following": "/following{/other_user}", "gists": "/gists{/gist_id}",
    "starred": "/starred{/owner}{/repo}", "subscriptions": "/subscriptions",
    "organizations": "/orgs", "repos": "/repos", "events": "/events{/privacy}",
    "received_events": "/received_events",
}  # fmt: skip
_OF_AN_ORGANIZATION = {
    "repos": "/repos", "events": "/events", "hooks": "/hooks", "issues": "/issues",
    "members": "/members{/member}", "public_members": "/public_members{/member}",
}  # fmt: skip


def _urls(api: str, paths: Mapping[str, str]) -> Json:
    return {"url": api} | {f"{name}_url": api + path for name, path in paths.items()}


def _avatar(world: World, who: User) -> str:
    return f"{world.url}/_sandbox/avatars/{who.login}.svg"


GHOST = User(10137, "ghost", "Deleted user")  # GitHub's, in the place of a deleted account


def user(world: World, who: User) -> Json:
    who = GHOST if who.vanished else who
    page = f"{world.url}/{who.login}"
    if who.type == "Bot":
        page = f"{world.url}/apps/{who.login.removesuffix('[bot]')}"
    return {
        **ids("User", who.id),
        **_urls(f"{world.api}/users/{who.login}", _OF_A_USER),
        "login": who.login,
        "avatar_url": _avatar(world, who),
        "gravatar_id": "",
        "html_url": page,
        "type": who.type,
        "user_view_type": "public",
        "site_admin": False,
    }


def maybe_user(world: World, who: User | None) -> Json | None:
    return user(world, who) if who and not who.vanished else None


def public_user(world: World, who: User) -> Json:
    untold = ("company", "location", "email", "hireable", "bio", "twitter_username")
    return {
        **user(world, who),
        **dates(world.created_at),
        **dict.fromkeys(untold),
        **dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0),
        "name": who.name,
        "blog": "",
    }


def organization(world: World) -> Json:
    return {
        **ids("Organization", world.owner.id),
        **_urls(f"{world.api}/orgs/{world.owner.login}", _OF_AN_ORGANIZATION),
        "login": world.owner.login,
        "avatar_url": _avatar(world, world.owner),
        "description": "",
    }


APP_PERMISSIONS = {
    "checks": "write",
    "contents": "write",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
}
APP_EVENTS = [
    "check_run", "issue_comment", "issues", "pull_request", "pull_request_review", "push",
    "repository",
]  # fmt: skip
CLIENT_ID = "Iv1.sandbox"


def app(world: World) -> Json:
    slug = world.bot.login.removesuffix("[bot]")
    return {
        **ids("App", world.app_id),
        **dates(world.created_at),
        "slug": slug,
        "client_id": CLIENT_ID,
        "owner": user(world, world.owner),
        "name": world.bot.name,
        "description": "",
        "external_url": world.leaderboard_url or world.url,
        "html_url": f"{world.url}/apps/{slug}",
        "permissions": {"deployments": "read", **APP_PERMISSIONS},
        "events": APP_EVENTS,
    }


def via_app(world: World, who: User) -> Json:
    return {"performed_via_github_app": app(world) if who is world.bot else None}


def installation(world: World) -> Json:
    api = f"{world.api}/app/installations/{world.installation_id}"
    return {
        **dates(world.created_at),
        "id": world.installation_id,
        "client_id": CLIENT_ID,
        "account": user(world, world.owner),
        "repository_selection": "selected",
        "access_tokens_url": f"{api}/access_tokens",
        "repositories_url": f"{world.api}/installation/repositories",
        "html_url": f"{world.url}/settings/installations/{world.installation_id}",
        "app_id": world.app_id,
        "app_slug": world.bot.login.removesuffix("[bot]"),
        "target_id": world.owner.id,
        "target_type": "Organization",
        "permissions": APP_PERMISSIONS,
        "events": APP_EVENTS,
        "single_file_name": None,
        "has_multiple_single_files": False,
        "single_file_paths": [],
        "suspended_by": user(world, world.owner) if world.suspended_at else None,
        "suspended_at": time(world.suspended_at),
    }


# The repository

_ENDPOINTS = {
    "archive": "/{archive_format}{/ref}", "assignees": "/assignees{/user}",
    "blobs": "/git/blobs{/sha}", "branches": "/branches{/branch}",
    "collaborators": "/collaborators{/collaborator}", "comments": "/comments{/number}",
    "commits": "/commits{/sha}", "compare": "/compare/{base}...{head}",
    "contents": "/contents/{+path}", "contributors": "/contributors",
    "deployments": "/deployments", "downloads": "/downloads", "events": "/events",
    "forks": "/forks", "git_commits": "/git/commits{/sha}", "git_refs": "/git/refs{/sha}",
    "git_tags": "/git/tags{/sha}", "hooks": "/hooks",
    "issue_comment": "/issues/comments{/number}", "issue_events": "/issues/events{/number}",
    "issues": "/issues{/number}", "keys": "/keys{/key_id}", "labels": "/labels{/name}",
    "languages": "/languages", "merges": "/merges", "milestones": "/milestones{/number}",
    "notifications": "/notifications{?since,all,participating}", "pulls": "/pulls{/number}",
    "releases": "/releases{/id}", "stargazers": "/stargazers", "statuses": "/statuses/{sha}",
    "subscribers": "/subscribers", "subscription": "/subscription", "tags": "/tags",
    "teams": "/teams", "trees": "/git/trees{/sha}",
}  # fmt: skip


_HAS_NONE = (
    "stargazers_count", "watchers_count", "watchers", "forks_count", "forks", "size",
)  # fmt: skip
_IS_NOT = (
    "has_projects", "has_downloads", "has_wiki", "has_pages", "has_discussions", "archived",
    "disabled", "is_template", "web_commit_signoff_required",
)  # fmt: skip


def repository(world: World) -> Json:
    waiting = sum(issue.state == "open" for issue in list(world.issues.values()))
    return {
        **ids("Repository", world.repository_id),
        **_urls(repo_api(world), _ENDPOINTS),
        **dates(world.created_at),
        **dict.fromkeys(("git_url", "ssh_url", "clone_url"), f"{world.html}.git"),
        **dict.fromkeys(_HAS_NONE, 0),
        **dict.fromkeys(_IS_NOT, False),
        "name": world.name,
        "full_name": world.full_name,
        "private": world.private,
        "owner": user(world, world.owner),
        "html_url": world.html,
        "description": "An open lab in a box",
        "fork": world.parent is not None,
        "pushed_at": stamp(world.created_at),
        "svn_url": world.html,
        "homepage": world.leaderboard_url,
        "language": "Python",
        "has_issues": True,
        "mirror_url": None,
        "allow_forking": True,
        "topics": [],
        "custom_properties": {},
        "visibility": "private" if world.private else "public",
        "license": None,
        "open_issues_count": waiting,
        "open_issues": waiting,
        "default_branch": world.default_branch,
    }


def full_repository(world: World) -> Json:
    return repository(world) | {"network_count": 0, "subscribers_count": 0}
