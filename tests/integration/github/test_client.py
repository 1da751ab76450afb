"""What the bot asks about pull requests, and what it is told."""

from __future__ import annotations

import pygit2
import pytest

from bot.fake_github.server import Sandbox
from bot.github import GitHub, Gone
from bot.model.policy_file import OLD_PATH, PATH
from bot.model.thread import Commit
from runner.schema.lab_config import FOLDER

DECLARATION = "experiments/warm/experiment.yaml"


def propose(sandbox: Sandbox, login: str = "ada", *, fork: bool = False) -> int:
    home = sandbox.fork(login) if fork else sandbox
    home.commit(login, "warm", {DECLARATION: b"title: Warm\n"}, "Declare")
    return sandbox.open_pull(login, "Warm", None, f"{home.world.owner.login}:warm").number


def test_a_pull_request_tells_its_branches_and_where_its_head_lives(
    github: GitHub, sandbox: Sandbox
) -> None:
    mine = github.pull(propose(sandbox))
    assert mine is not None
    assert (mine.base_ref, mine.head_repository) == ("main", github.id)
    assert (mine.draft, mine.merged) == (False, False)
    assert mine.author
    assert mine.author.login == "ada"
    number = propose(sandbox, "sam", fork=True)
    forked = github.pull(number)
    assert forked is not None
    assert forked.head_repository == sandbox.fork("sam").world.repository_id != github.id
    assert github.changed(forked.base, forked.head)[0] == DECLARATION  # through the base
    sandbox.remove_fork("sam")
    orphan = github.pull(number)
    assert orphan is not None
    assert orphan.head_repository is None


def test_drafts_locks_and_merges_are_seen(github: GitHub, sandbox: Sandbox) -> None:
    number = propose(sandbox)
    sandbox.set_draft("ada", number, True)
    sandbox.lock("grace", number)
    pull = github.pull(number)
    assert pull is not None
    assert (pull.draft, pull.open) == (True, True)
    sandbox.set_draft("ada", number, False)
    sandbox.merge("grace", number)
    merged = github.pull(number)
    assert merged is not None
    assert (merged.draft, merged.merged, merged.open) == (False, True, False)


def test_a_review_is_bound_to_its_commit_and_its_dismissal_is_seen(
    github: GitHub, sandbox: Sandbox
) -> None:
    number = propose(sandbox)
    made = sandbox.submit_review("grace", number, "APPROVE", "Good.\n\n/run")
    sandbox.commit("ada", "warm", {DECLARATION: b"title: Warmer\n"}, "More")
    review = github.review(number, made.id)
    pull = github.pull(number)
    assert review is not None
    assert pull is not None
    assert (review.state, review.author.login, review.body) == ("APPROVED", "grace", made.body)
    assert review.commit == made.commit_id != pull.head
    sandbox.dismiss_review("grace", number, made.id, "It has changed.")
    assert [each.state for each in github.reviews(number)] == ["DISMISSED"]
    assert github.review(number, made.id + 1) is None
    assert github.review(99, made.id) is None


def authors(github: GitHub, number: int) -> set[int]:
    return {id for commit in github.contributions(number).commits for id in commit.people}


def test_a_pull_requests_commits_come_with_their_accounts(github: GitHub, sandbox: Sandbox) -> None:
    number = propose(sandbox)
    ada, grace = (sandbox.user(login).id for login in ("ada", "grace"))
    assert (github.contributions(number).opener, authors(github, number)) == (ada, {ada})
    sandbox.commit("grace", "warm", {DECLARATION: b"title: Warmer\n"}, "A small change")
    assert authors(github, number) == {ada, grace}
    for n in range(120):  # more than a page, and grace's is among the first
        sandbox.commit("ada", "warm", {DECLARATION: f"title: {n}\n".encode()}, "Again")
    assert authors(github, number) == {ada, grace}
    commits = github.contributions(number).commits
    assert [commit.parents for commit in commits[1:]] == [(c.sha,) for c in commits[:-1]]
    assert not any(commit.has_no_account for commit in commits)


def test_a_commit_with_an_address_of_nobody_has_no_account(
    github: GitHub, sandbox: Sandbox
) -> None:
    number, git = propose(sandbox), sandbox.world.git
    head = git.resolve("warm")
    nobody = pygit2.Signature("Grace", "grace@laptop.local", 1_700_000_000, 0)
    sha = git.write_commit(git.write_tree(head, []), [head], "From my laptop", nobody, nobody)
    sandbox.update_ref("grace", "refs/heads/warm", sha)
    assert github.contributions(number).commits[-1] == Commit(sha, (head,), frozenset(), True)


@pytest.mark.parametrize("extra", [{}, {"experiments/warm/more.txt": b"and more\n"}])
def test_a_merge_is_plain_if_it_adds_nothing(
    github: GitHub, sandbox: Sandbox, extra: dict[str, bytes]
) -> None:
    number, git = propose(sandbox), sandbox.world.git
    ours = git.resolve("warm")
    theirs = sandbox.commit("grace", "main", {"docs/page.md": b"A page\n"}, "Elsewhere")
    entries = [(path, "100644", git.write_blob(content)) for path, content in extra.items()]
    tree = git.write_tree(None, [])
    merge_tree = git.merged_tree(ours, theirs)
    by = sandbox.signature(sandbox.user("grace"))
    plain = git.write_commit(merge_tree or tree, [ours, theirs], "Merge", by, by)
    if entries:
        plain = git.write_commit(git.write_tree(plain, entries), [ours, theirs], "Merge", by, by)
    sandbox.update_ref("grace", "refs/heads/warm", plain)
    (merge,) = [c for c in github.contributions(number).commits if len(c.parents) == 2]
    assert merge.is_plain_merge == (not extra)


def test_a_head_that_left_and_came_back_was_pushed_by_force(
    github: GitHub, sandbox: Sandbox
) -> None:
    number = propose(sandbox)
    first = github.pull(number)
    assert first is not None
    sandbox.commit("ada", "warm", {DECLARATION: b"title: Warmer\n"}, "More")
    assert github.pushes(number) == []
    sandbox.world.clock.advance(10)
    sandbox.update_ref("ada", "refs/heads/warm", first.head, force=True)
    (push,) = github.pushes(number)
    assert (push.after, push.at) == (first.head, sandbox.world.clock.now())


def test_the_labs_files_are_those_of_the_default_branch(github: GitHub, sandbox: Sandbox) -> None:
    sha = github.default_head()
    assert (sha, github.lab_files(sha)) == (sandbox.world.git.resolve("main"), {})
    sandbox.commit("grace", "elsewhere", {PATH: b"lax"}, "Not here")
    assert github.lab_files(github.default_head()) == {}
    files: dict[str, bytes | None] = {OLD_PATH: b"own: true\n", "README.md": b"A lab"}
    sandbox.commit("grace", "main", files, "A policy at its old path")
    assert github.lab_files(github.default_head()) == {OLD_PATH: b"own: true\n"}
    other = f"{FOLDER}/tracks.yml"
    files = {PATH: b"settle_seconds: 60\n", other: b"tracks: {}\n", f"{FOLDER}/notes.md": b""}
    later = sandbox.commit("grace", "main", files, "A policy")
    assert github.default_head() == later
    wanted = {PATH: b"settle_seconds: 60\n", other: b"tracks: {}\n"}
    assert github.lab_files(later) == wanted
    with pytest.raises(Gone):  # a replica does not know the commit yet; that is not "no policy"
        github.lab_files("0" * 40)


def test_more_files_than_github_lists_in_a_comparison_are_found(
    github: GitHub, sandbox: Sandbox
) -> None:
    files: dict[str, bytes | None] = {f"notes/{n}.md": b"x" for n in range(299)}
    head = sandbox.commit("ada", "many", files, "Many")
    base = sandbox.world.git.resolve("main") or ""
    assert len(github.changed(base, head)) == 299
    hidden = "experiments/hidden/experiment.yaml"
    more = sandbox.commit("ada", "many", {hidden: b"x", "README.md": None}, "One more")
    later = sandbox.commit("grace", "main", {"elsewhere.md": b"x"}, "Meanwhile")
    assert set(github.changed(later, more)) == {*files, hidden}


def test_check_runs_are_found_on_every_page(github: GitHub, sandbox: Sandbox) -> None:
    head = sandbox.world.git.resolve("main") or ""
    for n in range(120):
        external = "1.plan" if n in (3, 110) else f"{n}"
        sandbox.create_check_run(sandbox.world.bot.login, name="x", head_sha=head,
                                 external_id=external)  # fmt: skip
    assert len(github.my_checks(head, "x", "1.plan")) == 2
