"""Who has a part in a pull request: who opened it, who wrote or committed its commits, and who
pushed them. Pure.

GitHub finds the account of a commit by the e-mail address in it, which anybody can write and which
may belong to nobody. So the accounts that pushed count as well, as deliveries name them, and a
commit of nobody that no known push brought leaves the question open."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bot.model.thread import Contributions, Push

Tree = Mapping[str, object]  # path → what a file is: its mode and the digest of its bytes


class Contributors(NamedTuple):
    """Everybody who is known to have a part."""

    people: frozenset[int]  # ids
    unknown_commit: str  # full SHA of one whose author or committer nobody knows; "": none


def contributors(contributions: Contributions, pushes: Iterable[Push]) -> Contributors:
    """Whoever opened, wrote, committed or pushed something. A merge that adds nothing of its own is
    no part. A commit whose address belongs to no account is its pusher's, if deliveries say who
    pushed it."""
    parents = {commit.sha: commit.parents for commit in contributions.commits}
    work = [commit for commit in contributions.commits if not commit.is_plain_merge]
    people, pushed = {contributions.opener}, set()
    for push in pushes:
        commits = _reachable(parents, push.after) - _reachable(parents, push.before)
        if push.by and any(commit.sha in commits for commit in work):
            people.add(push.by)
            pushed |= commits
    for commit in work:
        people |= commit.people
    unknown = (c.sha for c in work if c.has_no_account and c.sha not in pushed)
    return Contributors(frozenset(people - {0}), next(unknown, ""))


def _reachable(parents: Mapping[str, tuple[str, ...]], head: str) -> set[str]:
    """The pull request's commits that `head` contains."""
    commits: set[str] = set()
    pending = [head]
    while pending:
        if (sha := pending.pop()) in parents and sha not in commits:
            commits.add(sha)
            pending += parents[sha]
    return commits


def merged(base: Tree, ours: Tree, theirs: Tree) -> Tree | None:
    """The merge of two trees where at most one side changed each file; None if both did."""
    tree: dict[str, object] = {}
    for path in base.keys() | ours.keys() | theirs.keys():
        was, our_file, their_file = base.get(path), ours.get(path), theirs.get(path)
        if was not in (our_file, their_file) and our_file != their_file:
            return None
        if (file := their_file if our_file == was else our_file) is not None:
            tree[path] = file
    return tree
