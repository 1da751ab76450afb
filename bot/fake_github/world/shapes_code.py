"""The world as GitHub's JSON: commits, trees, files, comparisons, check runs."""

from __future__ import annotations

import base64
from dataclasses import asdict

from pygit2 import Commit, Signature

from bot.fake_github.world import shapes
from bot.fake_github.world.git import ZERO, Change, Entry, signed_at
from bot.fake_github.world.shapes import Json, dates, ids, node_id, repo_api, time
from bot.fake_github.world.state import CheckRun, Issue, Pull, User, World, stamp

_UNSIGNED = {
    **dict.fromkeys(("signature", "payload", "verified_at")),
    "verified": False,
    "reason": "unsigned",
}


def _signature(who: Signature) -> Json:
    return {"name": who.name, "email": who.email, "date": stamp(signed_at(who))}


def _user_of(world: World, who: Signature) -> Json | None:
    found = [each for each in world.users.values() if each.email == who.email]
    return shapes.user(world, found[0]) if found else None


# The git database


def _object(world: World, kind: str, sha: str) -> Json:
    return {"sha": sha, "url": f"{repo_api(world)}/git/{kind}s/{sha}"}


def _content(world: World, sha: str) -> Json:
    content = base64.encodebytes(world.git.blob(sha)).decode()
    return {"encoding": "base64", "content": content}


def _told(world: World, one: Commit) -> Json:
    """The fields of a commit object."""
    return {
        "author": _signature(one.author),
        "committer": _signature(one.committer),
        "message": one.message.rstrip("\n"),
        "tree": _object(world, "tree", str(one.tree_id)),
        "verification": _UNSIGNED,
    }


def _named(world: World, one: Commit, where: str) -> Json:
    """Its ids and URLs, and those of its parents."""

    def addresses(sha: str) -> Json:
        page = f"{world.html}/commit/{sha}"
        return {"sha": sha, "url": f"{repo_api(world)}/{where}/{sha}", "html_url": page}

    return {
        **addresses(str(one.id)),
        "node_id": node_id("Commit", str(one.id)),
        "parents": [addresses(str(parent)) for parent in one.parent_ids],
    }


def git_commit(world: World, sha: str) -> Json:
    one = world.git.commit(sha)
    return _told(world, one) | _named(world, one, "git/commits")


def git_ref(world: World, ref: str, sha: str) -> Json:
    kind = world.git.kind(sha) or "commit"
    return {
        "ref": ref,
        "node_id": node_id("Ref", ref),
        "url": f"{repo_api(world)}/git/{ref}",
        "object": _object(world, kind, sha) | {"type": kind},
    }


def git_tree(world: World, sha: str, entries: list[Entry]) -> Json:
    tree = []
    for entry in entries:
        known = {name: value for name, value in asdict(entry).items() if value is not None}
        tree.append(known | _object(world, entry.type, entry.sha))
    most = world.max_tree
    return {**_object(world, "tree", sha), "tree": tree[:most], "truncated": len(tree) > most}


def git_blob(world: World, sha: str) -> Json:
    return {
        **_object(world, "blob", sha),
        **_content(world, sha),
        "node_id": node_id("Blob", sha),
        "size": len(world.git.blob(sha)),
    }


def content(world: World, entry: Entry, path: str, ref: str, *, whole: bool) -> Json:
    """A file (with `whole`, its bytes) or an item of a folder's listing."""
    kind = {"tree": "dir", "blob": "file", "commit": "submodule"}[entry.type]
    url = f"{repo_api(world)}/contents/{path}?ref={ref}"
    git_url = _object(world, entry.type, entry.sha)["url"]
    html_url = f"{world.html}/{'tree' if kind == 'dir' else 'blob'}/{ref}/{path}"
    shape: Json = {
        "type": kind,
        "size": entry.size or 0,
        "name": path.rsplit("/", 1)[-1],
        "path": path,
        "sha": entry.sha,
        "url": url,
        "git_url": git_url,
        "html_url": html_url,
        "download_url": f"{world.html}/raw/{ref}/{path}" if kind == "file" else None,
        "_links": {"self": url, "git": git_url, "html": html_url},
    }
    return shape | (_content(world, entry.sha) if whole else {})


# Commits and comparisons


def commit_changes(world: World, one: Commit) -> list[Change]:
    return world.git.diff(str(one.parent_ids[0]), str(one.id)) if one.parent_ids else []


def commit(world: World, sha: str, *, whole: bool = False) -> Json:
    one = world.git.commit(sha)
    shape = _named(world, one, "commits")
    shape |= {
        "commit": {
            **_told(world, one),
            "url": _object(world, "commit", sha)["url"],
            "comment_count": 0,
        },
        "comments_url": f"{shape['url']}/comments",
        "author": _user_of(world, one.author) or {},
        "committer": _user_of(world, one.committer) or {},
    }
    if whole:
        changes = commit_changes(world, one)
        added, removed = sum(c.additions for c in changes), sum(c.deletions for c in changes)
        shape["stats"] = {"additions": added, "deletions": removed, "total": added + removed}
        shape["files"] = [diff_entry(world, sha, change) for change in changes]
    return shape


def diff_entry(world: World, sha: str, change: Change) -> Json:
    shape: Json = {
        "sha": change.sha,
        "filename": change.path,
        "status": change.status,
        "additions": change.additions,
        "deletions": change.deletions,
        "changes": change.additions + change.deletions,
        "blob_url": f"{world.html}/blob/{sha}/{change.path}",
        "raw_url": f"{world.html}/raw/{sha}/{change.path}",
        "contents_url": f"{repo_api(world)}/contents/{change.path}?ref={sha}",
    }
    return shape | ({} if change.patch is None else {"patch": change.patch})


def branch(world: World, name: str, sha: str) -> Json:
    api = f"{repo_api(world)}/branches/{name}"
    return {
        "name": name,
        "commit": commit(world, sha, whole=True),
        "_links": {"self": api, "html": f"{world.html}/tree/{name}"},
        "protected": False,
        "protection": {
            "enabled": False,
            "required_status_checks": {
                "enforcement_level": "off", "contexts": [], "checks": [],
            },
        },
        "protection_url": f"{api}/protection",
    }  # fmt: skip


def comparison(
    world: World, base: str, head: str, merge_base: str, names: str, part: slice
) -> Json:
    """`part`: which of the commits; files are listed with the first ones, 300 at most."""
    ahead, behind = world.git.log(base, head), world.git.log(head, base)
    status = {(True, True): "diverged", (True, False): "ahead", (False, True): "behind"}
    page = f"{world.html}/compare/{names}"
    return {
        "url": f"{repo_api(world)}/compare/{names}",
        "html_url": page,
        "permalink_url": f"{world.html}/compare/{base}...{head}",
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "base_commit": commit(world, base),
        "merge_base_commit": commit(world, merge_base),
        "status": status.get((bool(ahead), bool(behind)), "identical"),
        "ahead_by": len(ahead),
        "behind_by": len(behind),
        "total_commits": len(ahead),
        "commits": [commit(world, sha) for sha in ahead[part]],
        "files": [diff_entry(world, head, c) for c in world.git.diff(merge_base, head)[:300]]
        if part.start == 0
        else [],
    }


def push(world: World, who: User, ref: str, before: str, after: str) -> Json:
    """The payload of a `push`, without the common fields."""
    shas = world.git.log(before, after) if before != ZERO else [after]
    commits = [_pushed_commit(world, sha) for sha in shas]
    forced = before != ZERO and world.git.merge_base(before, after) != before
    return {
        "ref": ref,
        "before": before,
        "after": after,
        "created": before == ZERO,
        "deleted": False,
        "forced": forced,
        "base_ref": None,
        "compare": f"{world.html}/compare/{before[:12]}...{after[:12]}",
        "commits": commits,
        "head_commit": _pushed_commit(world, after),
        "pusher": {"name": who.login, "email": who.email},
    }


def _pushed_commit(world: World, sha: str) -> Json:
    one = world.git.commit(sha)
    paths: dict[str, list[str]] = {"added": [], "removed": [], "modified": []}
    for change in commit_changes(world, one):
        paths[change.status].append(change.path)
    author, committer = (
        {"name": who.name, "email": who.email} for who in (one.author, one.committer)
    )
    return {
        "id": sha,
        "tree_id": str(one.tree_id),
        "distinct": True,
        "message": one.message.rstrip("\n"),
        "timestamp": stamp(signed_at(one.committer)),
        "url": f"{world.html}/commit/{sha}",
        "author": author,
        "committer": committer,
        **paths,
    }


# Check runs


def pull_changes(world: World, one: Issue) -> list[Change]:
    """The changes of a pull request: from where it left its base to its head."""
    base, head = one.as_pull.base_sha, one.as_pull.head_sha
    return world.git.diff(world.git.merge_base(base, head) or base, head)


def check_run(world: World, run: CheckRun) -> Json:
    url = f"{repo_api(world)}/check-runs/{run.id}"
    page = f"{world.html}/runs/{run.id}"
    return {
        **ids("CheckRun", run.id),
        **run.model_dump(include={"name", "head_sha", "status", "conclusion"}),
        "external_id": run.external_id or "",
        "url": url,
        "html_url": page,
        "details_url": run.details_url or page,
        "started_at": time(run.started_at),
        "completed_at": time(run.completed_at),
        "output": {
            **run.model_dump(include={"title", "summary", "text"}),
            "annotations_count": len(run.annotations),
            "annotations_url": f"{url}/annotations",
        },
        "check_suite": {"id": int(run.head_sha[:7], 16)},
        "app": shapes.app(world),
        "pull_requests": [
            _minimal_pull(world, issue.number, pull)
            for issue, pull in world.open_pulls()
            if pull.head_sha == run.head_sha
            and pull.head_repository == world.repository_id  # GitHub lists none from forks
        ],
    }


def check_suite(world: World, run: CheckRun) -> Json:
    """As in webhooks; answers have only its id."""
    seen = check_run(world, run)
    id = seen["check_suite"]["id"]
    branches = [name for name, sha in world.git.branches().items() if sha == run.head_sha]
    return {
        **ids("CheckSuite", id),
        **dates(run.created_at),
        "head_branch": branches[0] if branches else None,
        **run.model_dump(include={"head_sha", "status", "conclusion"}),
        "url": f"{repo_api(world)}/check-suites/{id}",
        "before": None,
        "after": run.head_sha,
        "pull_requests": seen["pull_requests"],
        "app": seen["app"],
    }


def _minimal_pull(world: World, number: int, pull: Pull) -> Json:
    repo = {"id": world.repository_id, "name": world.name, "url": repo_api(world)}
    sides = (("head", pull.head, pull.head_sha), ("base", pull.base, pull.base_sha))
    return {
        "id": pull.id,
        "number": number,
        "url": f"{repo_api(world)}/pulls/{number}",
        **{side: {"ref": ref, "sha": sha, "repo": repo} for side, ref, sha in sides},
    }
