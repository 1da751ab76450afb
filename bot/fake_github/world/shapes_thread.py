"""The world as GitHub's JSON: issues, pull requests, comments, labels, reactions."""

from __future__ import annotations

from bot.fake_github.world import shapes, shapes_code
from bot.fake_github.world.shapes import Json, dates, ids, repo_api, time
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


def label(world: World, one: Label) -> Json:
    return {
        **ids("Label", one.id),
        "url": f"{repo_api(world)}/labels/{one.name.replace(' ', '%20')}",
        "name": one.name,
        "color": one.color,
        "default": False,
        "description": one.description,
    }


def labels(world: World, these: list[Label]) -> list[Json]:
    return [label(world, each) for each in these]


def reaction(world: World, one: Reaction) -> Json:
    return {
        **ids("Reaction", one.id),
        "user": shapes.user(world, one.user),
        "content": one.content,
        "created_at": stamp(one.created_at),
    }


def _rollup(url: str, reactions: list[Reaction]) -> Json:
    counts = {name: sum(each.content == name for each in reactions) for name in REACTIONS}
    return {"url": f"{url}/reactions", "total_count": len(reactions), **counts}


def _written(world: World, one: Issue | Comment | Review) -> Json:
    """The fields of everything that a user wrote."""
    stranger = "COLLABORATOR" if one.user.role else "NONE"
    return {
        "user": shapes.maybe_user(world, one.user),
        "author_association": "OWNER" if one.user is world.owner else stranger,
        "body": one.body,
    }


def _thread(world: World, one: Issue) -> Json:
    """The common fields of issues and pull requests."""
    return {
        **_written(world, one),
        **dates(one.created_at, one.updated_at),
        "number": one.number,
        "title": one.title,
        "state": one.state,
        "locked": one.locked,
        "active_lock_reason": one.lock_reason,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "closed_at": time(one.closed_at),
        "draft": one.pull.draft if one.pull else False,
    }


def _page(world: World, one: Issue) -> str:
    return f"{world.html}/{'pull' if one.pull else 'issues'}/{one.number}"


def _pull_urls(world: World, one: Issue) -> Json:
    page = _page(world, one)
    return {
        "url": f"{repo_api(world)}/pulls/{one.number}",
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
    }


def issue(world: World, one: Issue) -> Json:
    api = f"{repo_api(world)}/issues/{one.number}"
    shape: Json = {
        **ids("Issue", one.id),
        **_thread(world, one),
        **shapes.via_app(world, one.user),
        "url": api,
        "repository_url": repo_api(world),
        "labels_url": f"{api}/labels{{/name}}",
        "comments_url": f"{api}/comments",
        "events_url": f"{api}/events",
        "timeline_url": f"{api}/timeline",
        "html_url": _page(world, one),
        "labels": labels(world, one.labels),
        "state_reason": one.state_reason,
        "comments": len(one.comments),
        "closed_by": shapes.maybe_user(world, one.closed_by),
        "reactions": _rollup(api, one.reactions),
    }
    if one.pull:
        merged = {"merged_at": time(one.pull.merged_at)}
        shape["pull_request"] = _pull_urls(world, one) | merged
    return shape


def comment(world: World, one: Comment) -> Json:
    api = f"{repo_api(world)}/issues"
    url = f"{api}/comments/{one.id}"
    return {
        **ids("IssueComment", one.id),
        **_written(world, one),
        **dates(one.created_at, one.updated_at),
        **shapes.via_app(world, one.user),
        "url": url,
        "html_url": f"{_page(world, world.issues[one.number])}#issuecomment-{one.id}",
        "issue_url": f"{api}/{one.number}",
        "reactions": _rollup(url, one.reactions),
    }


def pull_simple(world: World, one: Issue) -> Json:
    pull = one.as_pull
    urls = _pull_urls(world, one)
    issue = f"{repo_api(world)}/issues/{one.number}"
    related = {
        "commits": f"{urls['url']}/commits",
        "review_comments": f"{urls['url']}/comments",
        "review_comment": f"{repo_api(world)}/pulls/comments{{/number}}",
        "comments": f"{issue}/comments",
        "statuses": f"{repo_api(world)}/statuses/{pull.head_sha}",
    }
    links = {"self": urls["url"], "html": urls["html_url"], "issue": issue, **related}
    return {
        **ids("PullRequest", pull.id),
        **_thread(world, one),
        "user": shapes.user(world, one.user),
        **urls,
        **{f"{name}_url": url for name, url in related.items()},
        "issue_url": issue,
        "_links": {name: {"href": href} for name, href in links.items()},
        "merged_at": time(pull.merged_at),
        "merge_commit_sha": pull.merge_commit_sha,
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": [
            shape | {"description": shape["description"] or ""}
            for shape in labels(world, one.labels)
        ],
        "head": _side(world, pull.head_owner, pull.head_repository, pull.head, pull.head_sha),
        "base": _side(world, world.owner, world.repository_id, pull.base, pull.base_sha),
        "auto_merge": None,
    }


def _side(world: World, owner: User, repository: int | None, branch: str, sha: str) -> Json:
    """Head or base; the repository of a removed fork is null."""
    found = world if repository == world.repository_id else world.forks.get(repository or 0)
    return {
        "label": f"{owner.login}:{branch}",
        "ref": branch,
        "sha": sha,
        "user": shapes.user(world, owner),
        "repo": shapes.repository(found) if found else None,
    }


def pull(world: World, one: Issue) -> Json:
    changes, pull = shapes_code.pull_changes(world, one), one.as_pull
    return pull_simple(world, one) | {
        "merged": pull.merged_at is not None,
        "mergeable": None,
        "rebaseable": None,
        "mergeable_state": "draft" if pull.draft else "unknown",
        "merged_by": shapes.maybe_user(world, pull.merged_by),
        "comments": len(one.comments),
        "review_comments": 0,
        "maintainer_can_modify": False,
        "commits": len(world.git.log(pull.base_sha, pull.head_sha)),
        "additions": sum(change.additions for change in changes),
        "deletions": sum(change.deletions for change in changes),
        "changed_files": len(changes),
    }


def review(world: World, one: Review) -> Json:
    urls = _pull_urls(world, world.issues[one.number])
    page = f"{urls['html_url']}#pullrequestreview-{one.id}"
    return {
        **ids("PullRequestReview", one.id),
        **_written(world, one),
        "state": one.state,
        "html_url": page,
        "pull_request_url": urls["url"],
        "_links": {"html": {"href": page}, "pull_request": {"href": urls["url"]}},
        "submitted_at": stamp(one.created_at),
        "commit_id": one.commit_id,
    }


def timeline(world: World, one: Issue) -> list[Json]:
    """Comments, reviews, commits and events in order.

    A commit has only its own dates. A pull request lists its current commits."""
    told = [(each.id, _event(world, one, each)) for each in one.events if each.kind != "pushed"]
    for each in one.comments:
        actor = {"event": "commented", "actor": shapes.maybe_user(world, each.user)}
        told.append((each.id, comment(world, each) | actor))
    if one.pull:
        for made in one.pull.reviews:
            shape = review(world, made) | {"event": "reviewed", "state": made.state.lower()}
            told.append((made.id, shape))
        pushes: dict[str, int] = {}
        for event in one.events:
            if event.kind in ("pushed", "head_ref_force_pushed"):
                pushes.setdefault(event.detail, event.id)
        shas = world.git.log(one.pull.base_sha, one.pull.head_sha)
        at = 0
        for sha in reversed(shas):  # a commit is listed at the push that brought it
            at = pushes.get(sha, at)
            told.insert(0, (at, shapes_code.git_commit(world, sha) | {"event": "committed"}))
    return [each for _, each in sorted(told, key=lambda pair: pair[0])]


def _event(world: World, one: Issue, each: Event) -> Json:
    pushed = each.detail if each.kind in ("head_ref_force_pushed", "merged") else None
    shape: Json = {
        **ids("IssueEvent", each.id),
        **shapes.via_app(world, each.user),
        "url": f"{repo_api(world)}/issues/events/{each.id}",
        "actor": shapes.maybe_user(world, each.user),
        "event": each.kind,
        "commit_id": pushed,
        "commit_url": f"{repo_api(world)}/commits/{pushed}" if pushed else None,
        "created_at": stamp(each.at),
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
