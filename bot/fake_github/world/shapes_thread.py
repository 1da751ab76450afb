"""The world as GitHub's JSON: issues, pull requests, comments, labels, reactions."""

from __future__ import annotations

from bot.fake_github.world import shapes, shapes_code
from bot.fake_github.world.shapes import Json, node_id, repo_api, time
from bot.fake_github.world.state import (
    REACTIONS,
    Comment,
    Event,
    Issue,
    Label,
    Reaction,
    Review,
    User,
    World,
    stamp,
)


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
        "locked": one.locked,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": len(one.comments),
        "created_at": stamp(one.created_at),
        "updated_at": stamp(one.updated_at),
        "closed_at": time(one.closed_at),
        "closed_by": shapes.user(world, one.closed_by) if one.closed_by else None,
        "author_association": association(world, one.user),
        "active_lock_reason": one.lock_reason,
        "draft": one.pull.draft if one.pull else False,
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
            "merged_at": time(one.pull.merged_at),
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
        "locked": one.locked,
        "title": one.title,
        "user": shapes.user(world, one.user),
        "body": one.body,
        "created_at": stamp(one.created_at),
        "updated_at": stamp(one.updated_at),
        "closed_at": time(one.closed_at),
        "merged_at": time(one.pull.merged_at),
        "merge_commit_sha": one.pull.merge_commit_sha,
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": [
            label(world, each) | {"description": each.description or ""} for each in one.labels
        ],
        "milestone": None,
        "draft": one.pull.draft,
        "commits_url": f"{api}/commits",
        "review_comments_url": f"{api}/comments",
        "review_comment_url": review_comment,
        "comments_url": f"{issue}/comments",
        "statuses_url": statuses,
        "head": _side(
            world, one.pull.head_owner, one.pull.head_repository, one.pull.head, one.pull.head_sha
        ),
        "base": _side(world, world.owner, world.repository_id, one.pull.base, one.pull.base_sha),
        "_links": {name: {"href": href} for name, href in links.items()},
        "author_association": association(world, one.user),
        "auto_merge": None,
        "active_lock_reason": one.lock_reason,
    }


def _side(world: World, owner: User, repository: int | None, branch: str, sha: str) -> Json:
    """Head or base; the repository of a removed fork is null."""
    found = world.repository(repository)
    return {
        "label": f"{owner.login}:{branch}",
        "ref": branch,
        "sha": sha,
        "user": shapes.user(world, owner),
        "repo": shapes.repository(found) if found else None,
    }


def pull(world: World, one: Issue) -> Json:
    assert one.pull is not None
    changes = shapes_code.pull_changes(world, one)
    return pull_simple(world, one) | {
        "merged": one.pull.merged_at is not None,
        "mergeable": None,
        "rebaseable": None,
        "mergeable_state": "draft" if one.pull.draft else "unknown",
        "merged_by": shapes.user(world, one.pull.merged_by) if one.pull.merged_by else None,
        "comments": len(one.comments),
        "review_comments": 0,
        "maintainer_can_modify": False,
        "commits": len(world.git.log(one.pull.base_sha, one.pull.head_sha)),
        "additions": sum(change.additions for change in changes),
        "deletions": sum(change.deletions for change in changes),
        "changed_files": len(changes),
    }


def review(world: World, one: Issue, each: Review) -> Json:
    page = f"{world.html}/pull/{one.number}#pullrequestreview-{each.id}"
    api = f"{repo_api(world)}/pulls/{one.number}"
    return {
        "id": each.id,
        "node_id": node_id("PullRequestReview", each.id),
        "user": shapes.user(world, each.user),
        "body": each.body,
        "state": each.state,
        "html_url": page,
        "pull_request_url": api,
        "author_association": association(world, each.user),
        "_links": {"html": {"href": page}, "pull_request": {"href": api}},
        "submitted_at": stamp(each.created_at),
        "commit_id": each.commit_id,
    }


# What a REST timeline calls the page's events; what is not here is not told there.
_EVENTS = {
    "closed": "closed", "reopened": "reopened", "labeled": "labeled", "unlabeled": "unlabeled",
    "renamed": "renamed", "force-pushed": "head_ref_force_pushed", "merged": "merged",
    "retargeted": "base_ref_changed", "drafted": "convert_to_draft",
    "readied": "ready_for_review", "dismissed": "review_dismissed", "locked": "locked",
    "unlocked": "unlocked",
}  # fmt: skip


def timeline(world: World, one: Issue) -> list[Json]:
    """Comments, reviews, commits and events in their order.

    A commit carries its own dates only. A pull request lists the commits that it has now."""
    told = [(each.id, _commented(world, each)) for each in one.comments]
    told += [(each.id, _event(world, one, each)) for each in one.events if each.kind in _EVENTS]
    if one.pull:
        told += [(each.id, _reviewed(world, one, each)) for each in one.pull.reviews]
        pushes: dict[str, int] = {}
        for each in one.events:
            if each.kind in ("pushed", "force-pushed"):
                pushes.setdefault(each.detail, each.id)
        shas = world.git.log(one.pull.base_sha, one.pull.head_sha)
        at = 0
        for sha in reversed(shas):  # a commit stands where the push that brought it stands
            at = pushes.get(sha, at)
            told.insert(0, (at, _committed(world, sha)))
    return [each for _, each in sorted(told, key=lambda pair: pair[0])]


def _commented(world: World, each: Comment) -> Json:
    shape = comment(world, each)
    return shape | {"event": "commented", "actor": shape["user"]}


def _reviewed(world: World, one: Issue, each: Review) -> Json:
    shape = review(world, one, each)
    return shape | {"event": "reviewed", "state": each.state.lower()}


def _committed(world: World, sha: str) -> Json:
    shape = shapes_code.git_commit(world, sha)
    return shape | {"event": "committed"}


def _event(world: World, one: Issue, each: Event) -> Json:
    url = f"{repo_api(world)}/issues/events/{each.id}"
    pushed = each.detail if each.kind in ("force-pushed", "merged") else None
    shape: Json = {
        "id": each.id,
        "node_id": node_id("IssueEvent", each.id),
        "url": url,
        "actor": shapes.user(world, each.user),
        "event": _EVENTS[each.kind],
        "commit_id": pushed,
        "commit_url": f"{repo_api(world)}/commits/{pushed}" if pushed else None,
        "created_at": stamp(each.at),
        "performed_via_github_app": shapes.app(world) if each.user is world.bot else None,
    }
    match each.kind:
        case "labeled" | "unlabeled":
            color = world.labels[each.detail.lower()].color
            shape["label"] = {"name": each.detail, "color": color}
        case "closed":
            shape["state_reason"] = one.state_reason
        case "locked":
            shape["lock_reason"] = each.detail or None
    return shape | each.told
