"""The world as GitHub's JSON: issues, pull requests, comments, labels, reactions."""

from __future__ import annotations

from bot.sandbox import shapes, shapes_code
from bot.sandbox.shapes import Json, node_id, repo_api, time
from bot.sandbox.state import REACTIONS, Comment, Issue, Label, Reaction, User, World, stamp


def association(world: World, who: User) -> str:
    if who is world.owner:
        return "OWNER"
    return "COLLABORATOR" if who.role else "NONE"


def label(world: World, one: Label) -> Json:
    return {
        "id": one.id,
        "node_id": node_id("Label", one.id),
        "url": f"{repo_api(world)}/labels/{one.name.replace(' ', '%20')}",
        "name": one.name,
        "color": one.color,
        "default": False,
        "description": one.description,
    }


def reaction(world: World, one: Reaction) -> Json:
    return {
        "id": one.id,
        "node_id": node_id("Reaction", one.id),
        "user": shapes.user(world, one.user),
        "content": one.content,
        "created_at": stamp(one.created_at),
    }


def _rollup(url: str, reactions: list[Reaction]) -> Json:
    counts = {name: sum(each.content == name for each in reactions) for name in REACTIONS}
    return {"url": f"{url}/reactions", "total_count": len(reactions), **counts}


def issue(world: World, one: Issue) -> Json:
    api = f"{repo_api(world)}/issues/{one.number}"
    kind = "pull" if one.pull else "issues"
    page = f"{world.html}/{kind}/{one.number}"
    shape: Json = {
        "url": api,
        "repository_url": repo_api(world),
        "labels_url": f"{api}/labels{{/name}}",
        "comments_url": f"{api}/comments",
        "events_url": f"{api}/events",
        "timeline_url": f"{api}/timeline",
        "html_url": page,
        "id": one.id,
        "node_id": node_id("Issue", one.id),
        "number": one.number,
        "title": one.title,
        "user": shapes.user(world, one.user),
        "labels": [label(world, each) for each in one.labels],
        "state": one.state,
        "state_reason": one.state_reason,
        "locked": False,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": len(one.comments),
        "created_at": stamp(one.created_at),
        "updated_at": stamp(one.updated_at),
        "closed_at": time(one.closed_at),
        "closed_by": shapes.user(world, one.closed_by) if one.closed_by else None,
        "author_association": association(world, one.user),
        "active_lock_reason": None,
        "draft": False,
        "body": one.body,
        "reactions": _rollup(api, one.reactions),
        "performed_via_github_app": shapes.app(world) if one.user is world.bot else None,
    }
    if one.pull:
        shape["pull_request"] = {
            "url": f"{repo_api(world)}/pulls/{one.number}",
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "merged_at": None,
        }
    return shape


def comment(world: World, one: Comment) -> Json:
    api = f"{repo_api(world)}/issues"
    url = f"{api}/comments/{one.id}"
    kind = "pull" if world.issues[one.number].pull else "issues"
    return {
        "url": url,
        "html_url": f"{world.html}/{kind}/{one.number}#issuecomment-{one.id}",
        "issue_url": f"{api}/{one.number}",
        "id": one.id,
        "node_id": node_id("IssueComment", one.id),
        "user": shapes.user(world, one.user),
        "created_at": stamp(one.created_at),
        "updated_at": stamp(one.updated_at),
        "author_association": association(world, one.user),
        "body": one.body,
        "reactions": _rollup(url, one.reactions),
        "performed_via_github_app": shapes.app(world) if one.user is world.bot else None,
    }


def pull_simple(world: World, one: Issue) -> Json:
    assert one.pull is not None
    issue = f"{repo_api(world)}/issues/{one.number}"
    api = f"{repo_api(world)}/pulls/{one.number}"
    page = f"{world.html}/pull/{one.number}"
    review_comment = f"{repo_api(world)}/pulls/comments{{/number}}"
    statuses = f"{repo_api(world)}/statuses/{one.pull.head_sha}"
    links = {
        "self": api,
        "html": page,
        "issue": issue,
        "comments": f"{issue}/comments",
        "review_comments": f"{api}/comments",
        "review_comment": review_comment,
        "commits": f"{api}/commits",
        "statuses": statuses,
    }
    return {
        "url": api,
        "id": one.pull.id,
        "node_id": node_id("PullRequest", one.pull.id),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": issue,
        "number": one.number,
        "state": one.state,
        "locked": False,
        "title": one.title,
        "user": shapes.user(world, one.user),
        "body": one.body,
        "created_at": stamp(one.created_at),
        "updated_at": stamp(one.updated_at),
        "closed_at": time(one.closed_at),
        "merged_at": None,
        "merge_commit_sha": None,
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": [
            label(world, each) | {"description": each.description or ""} for each in one.labels
        ],
        "milestone": None,
        "draft": False,
        "commits_url": f"{api}/commits",
        "review_comments_url": f"{api}/comments",
        "review_comment_url": review_comment,
        "comments_url": f"{issue}/comments",
        "statuses_url": statuses,
        "head": _side(world, one.pull.head, one.pull.head_sha),
        "base": _side(world, one.pull.base, one.pull.base_sha),
        "_links": {name: {"href": href} for name, href in links.items()},
        "author_association": association(world, one.user),
        "auto_merge": None,
        "active_lock_reason": None,
    }


def _side(world: World, branch: str, sha: str) -> Json:
    return {
        "label": f"{world.owner.login}:{branch}",
        "ref": branch,
        "sha": sha,
        "user": shapes.user(world, world.owner),
        "repo": shapes.repository(world),
    }


def pull(world: World, one: Issue) -> Json:
    assert one.pull is not None
    changes = shapes_code.pull_changes(world, one)
    return pull_simple(world, one) | {
        "merged": False,
        "mergeable": None,
        "rebaseable": None,
        "mergeable_state": "unknown",
        "merged_by": None,
        "comments": len(one.comments),
        "review_comments": 0,
        "maintainer_can_modify": False,
        "commits": len(world.git.log(one.pull.base_sha, one.pull.head_sha)),
        "additions": sum(change.additions for change in changes),
        "deletions": sum(change.deletions for change in changes),
        "changed_files": len(changes),
    }
