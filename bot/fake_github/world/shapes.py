"""The world as GitHub's JSON: people, the App, the repository.

Threads are in `shapes_thread.py`, commits and check runs in `shapes_code.py`.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from bot.fake_github.world.state import User, World, stamp

Json = dict[str, Any]


def node_id(kind: str, number: int | str) -> str:
    return base64.b64encode(f"0{len(kind)}:{kind}{number}".encode()).decode()


def time(at: datetime | None) -> str | None:
    return stamp(at) if at else None


def repo_api(world: World) -> str:
    return f"{world.api}/repos/{world.full_name}"


# People


def user(world: World, who: User) -> Json:
    api = f"{world.api}/users/{who.login}"
    page = f"{world.url}/{who.login}"
    if who.type == "Bot":
        page = f"{world.url}/apps/{who.login.removesuffix('[bot]')}"
    return {
        "login": who.login,
        "id": who.id,
        "node_id": node_id("User", who.id),
        "avatar_url": f"{world.url}/_sandbox/avatars/{who.login}.svg",
        "gravatar_id": "",
        "url": api,
        "html_url": page,
        "followers_url": f"{api}/followers",
        "following_url": f"{api}/following{{/other_user}}",
        "gists_url": f"{api}/gists{{/gist_id}}",
        "starred_url": f"{api}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{api}/subscriptions",
        "organizations_url": f"{api}/orgs",
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events{{/privacy}}",
        "received_events_url": f"{api}/received_events",
        "type": who.type,
        "user_view_type": "public",
        "site_admin": False,
    }


def public_user(world: World, who: User) -> Json:
    return user(world, who) | {
        "name": who.name,
        "company": None,
        "blog": "",
        "location": None,
        "email": None,
        "hireable": None,
        "bio": None,
        "twitter_username": None,
        "public_repos": 0,
        "public_gists": 0,
        "followers": 0,
        "following": 0,
        "created_at": stamp(world.created_at),
        "updated_at": stamp(world.created_at),
    }


def organization(world: World) -> Json:
    api = f"{world.api}/orgs/{world.owner.login}"
    return {
        "login": world.owner.login,
        "id": world.owner.id,
        "node_id": node_id("Organization", world.owner.id),
        "url": api,
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events",
        "hooks_url": f"{api}/hooks",
        "issues_url": f"{api}/issues",
        "members_url": f"{api}/members{{/member}}",
        "public_members_url": f"{api}/public_members{{/member}}",
        "avatar_url": f"{world.url}/_sandbox/avatars/{world.owner.login}.svg",
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


def app(world: World) -> Json:
    slug = world.bot.login.removesuffix("[bot]")
    return {
        "id": world.app_id,
        "slug": slug,
        "client_id": "Iv1.sandbox",
        "node_id": node_id("App", world.app_id),
        "owner": user(world, world.owner),
        "name": world.bot.name,
        "description": "",
        "external_url": world.leaderboard_url or world.url,
        "html_url": f"{world.url}/apps/{slug}",
        "created_at": stamp(world.created_at),
        "updated_at": stamp(world.created_at),
        "permissions": {"deployments": "read", **APP_PERMISSIONS},
        "events": APP_EVENTS,
    }


def installation(world: World) -> Json:
    api = f"{world.api}/app/installations/{world.installation_id}"
    return {
        "id": world.installation_id,
        "client_id": "Iv1.sandbox",
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
        "created_at": stamp(world.created_at),
        "updated_at": stamp(world.created_at),
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


def repository(world: World) -> Json:
    api = repo_api(world)
    waiting = sum(issue.state == "open" for issue in list(world.issues.values()))
    return {
        "id": world.repository_id,
        "node_id": node_id("Repository", world.repository_id),
        "name": world.name,
        "full_name": world.full_name,
        "private": world.private,
        "owner": user(world, world.owner),
        "html_url": world.html,
        "description": "An open lab in a box",
        "fork": world.parent is not None,
        "url": api,
        **{f"{name}_url": api + path for name, path in _ENDPOINTS.items()},
        "created_at": stamp(world.created_at),
        "updated_at": stamp(world.created_at),
        "pushed_at": stamp(world.created_at),
        "git_url": f"{world.html}.git",
        "ssh_url": f"{world.html}.git",
        "clone_url": f"{world.html}.git",
        "svn_url": world.html,
        "homepage": world.leaderboard_url,
        "size": 0,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": "Python",
        "has_issues": True,
        "has_projects": False,
        "has_downloads": False,
        "has_wiki": False,
        "has_pages": False,
        "has_discussions": False,
        "forks_count": 0,
        "mirror_url": None,
        "archived": False,
        "disabled": False,
        "is_template": False,
        "allow_forking": True,
        "web_commit_signoff_required": False,
        "topics": [],
        "custom_properties": {},
        "visibility": "private" if world.private else "public",
        "open_issues_count": waiting,
        "license": None,
        "forks": 0,
        "open_issues": waiting,
        "watchers": 0,
        "default_branch": world.default_branch,
    }


def full_repository(world: World) -> Json:
    return repository(world) | {"network_count": 0, "subscribers_count": 0}
