"""Commits, branches, files, pull requests and check runs, driven by PyGithub."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib

import pytest
from github import GithubException, InputGitAuthor, InputGitTreeElement
from github.Repository import Repository

from bot.fake_github.server import Sandbox
from tests.sandbox.fixtures import FILES, Ask

DECLARATION = "experiments/warm/experiment.yaml"


@pytest.fixture
def pull(sandbox: Sandbox) -> int:
    """An open pull request of Ada's with one file; its number."""
    sandbox.commit("ada", "warm", {DECLARATION: b"title: Warm\n"}, "Declare it")
    return sandbox.open_pull("ada", "Warm", "Closes #1", "warm").number


# Commits and files


def test_a_blob_has_the_sha_that_git_gives_it(bot: Repository) -> None:
    content = FILES["README.md"]
    sha = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    file = bot.get_contents("README.md")
    assert not isinstance(file, list)
    assert (file.sha, file.decoded_content) == (sha, content)
    blob = bot.get_git_blob(sha)
    assert base64.b64decode(blob.content) == content


def test_a_tree_is_read_whole_or_one_level(bot: Repository) -> None:
    whole = bot.get_git_tree("main", recursive=True).tree
    assert {each.path for each in whole if each.type == "blob"} == set(FILES)
    assert {each.path for each in bot.get_git_tree("main").tree} == {
        ".github", "README.md", "experiments",
    }  # fmt: skip
    folder = bot.get_contents("experiments/first")
    assert isinstance(folder, list)
    assert [each.path for each in folder] == ["experiments/first/experiment.yaml"]


def test_a_file_is_read_at_the_commit_that_was_asked_for(bot: Repository, sandbox: Sandbox) -> None:
    old = sandbox.commit("ada", "warm", {DECLARATION: b"old\n"}, "old")
    sandbox.commit("ada", "warm", {DECLARATION: b"new\n"}, "new")
    at_old, at_branch = (bot.get_contents(DECLARATION, ref=ref) for ref in (old, "warm"))
    assert not isinstance(at_old, list)
    assert not isinstance(at_branch, list)
    assert (at_old.decoded_content, at_branch.decoded_content) == (b"old\n", b"new\n")


def test_a_comparison_counts_from_where_the_branches_parted(
    bot: Repository, sandbox: Sandbox
) -> None:
    head = sandbox.commit("ada", "warm/branch", {DECLARATION: b"a\nb\n"}, "Declare it")
    sandbox.commit("grace", "main", {"README.md": b"# The lab\n"}, "Rename")
    compared = bot.compare("main", head)
    assert (compared.status, compared.ahead_by, compared.behind_by) == ("diverged", 1, 1)
    (file,) = compared.files
    assert (file.filename, file.status, file.additions) == (DECLARATION, "added", 2)
    assert file.patch == "@@ -0,0 +1,2 @@\n+a\n+b"
    assert bot.compare("main", "warm/branch").ahead_by == 1
    assert bot.compare("main", "main").status == "identical"


def test_a_commit_is_built_from_blob_tree_and_ref_and_its_sha_repeats(bot: Repository) -> None:
    """An orphan commit with a fixed author and date has the same SHA however often it is made."""
    who = InputGitAuthor("Lab", "lab@example.org", "2030-01-01T00:00:00Z")

    def make() -> str:
        picture = bot.create_git_blob(base64.b64encode(b"\x89PNG\xff").decode(), "base64")
        entry = InputGitTreeElement("curves/x1.png", "100644", "blob", sha=picture.sha)
        tree = bot.create_git_tree([entry])
        return bot.create_git_commit("Curves", tree, [], author=who, committer=who).sha

    sha = make()
    assert make() == sha
    bot.create_git_ref("refs/heads/pictures", sha)
    assert bot.get_git_ref("heads/pictures").object.sha == sha
    file = bot.get_contents("curves/x1.png", ref=sha)
    assert not isinstance(file, list)
    assert file.decoded_content == b"\x89PNG\xff"
    assert bot.get_git_commit(sha).author.date == dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    assert bot.get_commit(sha).commit.message == "Curves"


def test_a_tree_on_a_base_keeps_the_rest_and_can_delete(bot: Repository, ada: Repository) -> None:
    main = ada.get_git_ref("heads/main")
    base = ada.get_git_commit(main.object.sha).tree
    tree = ada.create_git_tree(
        [
            InputGitTreeElement("a/b/c.txt", "100644", "blob", content="deep"),
            InputGitTreeElement("README.md", "100644", "blob", sha=None),
        ],
        base_tree=base,
    )
    paths = {e.path for e in bot.get_git_tree(tree.sha, recursive=True).tree if e.type == "blob"}
    assert paths == set(FILES) - {"README.md"} | {"a/b/c.txt"}
    made = ada.create_git_commit("Change", tree, [ada.get_git_commit(main.object.sha)])
    main.edit(made.sha)
    assert bot.get_git_ref("heads/main").object.sha == made.sha


def test_a_ref_moves_forward_only_unless_forced(ada: Repository, sandbox: Sandbox) -> None:
    old = sandbox.commit("ada", "warm", {DECLARATION: b"old\n"}, "old")
    new = sandbox.commit("ada", "warm", {DECLARATION: b"new\n"}, "new")
    ref = ada.get_git_ref("heads/warm")
    assert ref.object.sha == new  # read it first: a lazy ref would patch /git/ref, not /git/refs
    with pytest.raises(GithubException) as backwards:
        ref.edit(old)
    assert backwards.value.data["message"] == "Update is not a fast forward"
    ref.edit(old, force=True)
    ref.edit(new)
    with pytest.raises(GithubException) as twice:
        ada.create_git_ref("refs/heads/warm", old)
    assert twice.value.data["message"] == "Reference already exists"
    with pytest.raises(GithubException) as nothing:
        ada.create_git_ref("refs/heads/other", "0" * 40)
    assert nothing.value.status == 422


def test_a_stranger_cannot_push(sam: Repository) -> None:
    with pytest.raises(GithubException) as refused:
        sam.create_git_blob("x", "utf-8")
    assert refused.value.status == 403
    assert "denied to sam" in refused.value.data["message"]


@pytest.mark.parametrize("path", ["../up", "/root", "a//b", ".git/config", "a\nb"])
def test_a_path_that_leaves_the_repository_is_refused(ask: Ask, path: str) -> None:
    entry = {"path": path, "mode": "100644", "type": "blob", "content": "x"}
    assert ask("POST", "/git/trees", json={"tree": [entry]}).status_code == 422


# Pull requests


def test_a_pull_request_is_opened_and_listed(ada: Repository, sandbox: Sandbox) -> None:
    head = sandbox.commit("ada", "warm", {DECLARATION: b"title: Warm\n"}, "Declare it")
    made = ada.create_pull(title="Warm", body="Closes #1", head="warm", base="main")
    assert (made.number, made.head.sha, made.head.ref, made.base.ref) == (1, head, "warm", "main")
    assert (made.changed_files, made.additions, made.commits) == (1, 1, 1)
    assert [each.filename for each in made.get_files()] == [DECLARATION]
    assert [each.number for each in ada.get_pulls(head="regatta-lab:warm")] == [1]
    assert list(ada.get_pulls(head="regatta-lab:other")) == []
    assert ada.get_issue(1).pull_request is not None
    assert [each.sha for each in made.get_commits()] == [head]


def test_a_push_moves_the_head_and_the_files(ada: Repository, sandbox: Sandbox, pull: int) -> None:
    head = sandbox.commit("ada", "warm", {"experiments/warm/model.py": b"x = 1\n"}, "More")
    seen = ada.get_pull(pull)
    assert (seen.head.sha, seen.changed_files, seen.commits) == (head, 2, 2)


def test_a_pull_request_closes_and_its_head_stays(
    ada: Repository, sandbox: Sandbox, pull: int
) -> None:
    seen = ada.get_pull(pull)
    head = seen.head.sha
    seen.edit(state="closed")
    sandbox.commit("ada", "warm", {DECLARATION: b"later\n"}, "later")
    assert (ada.get_pull(pull).state, ada.get_pull(pull).head.sha) == ("closed", head)


@pytest.mark.usefixtures("pull")
def test_a_pull_request_without_a_branch_or_a_change_is_refused(ada: Repository) -> None:
    for head in ("none", "main", "warm"):
        with pytest.raises(GithubException) as refused:
            ada.create_pull(title="x", body="", head=head, base="main")
        assert refused.value.data["errors"][0]["field"] == "head"


# Check runs


def test_a_check_run_goes_from_queued_to_completed(
    bot: Repository, sandbox: Sandbox, pull: int
) -> None:
    head = bot.get_pull(pull).head.sha
    made = bot.create_check_run("regatta / plan", head, external_id="p1")
    assert (made.status, made.external_id, made.app.slug) == ("queued", "p1", "regatta-lab")
    assert [each.number for each in made.pull_requests] == [pull]
    output = {"title": "6 runs", "summary": "2 arms × 3 seeds"}
    made.edit(status="in_progress", output=output)
    made.edit(conclusion="success")
    seen = bot.get_check_run(made.id)
    assert (seen.status, seen.conclusion, seen.output.title) == ("completed", "success", "6 runs")
    assert seen.completed_at == sandbox.world.clock.now()


def test_only_the_app_makes_check_runs(ada: Repository, bot: Repository, pull: int) -> None:
    head = ada.get_pull(pull).head.sha
    for attempt in (
        lambda: ada.create_check_run("regatta / plan", head),
        lambda: ada.get_check_run(bot.create_check_run("x", head).id).edit(status="queued"),
    ):
        with pytest.raises(GithubException) as refused:
            attempt()
        assert refused.value.status == 403
        message = refused.value.data["message"]
        assert message == "Resource not accessible by personal access token"


def test_the_latest_check_of_a_name_is_shown_and_all_on_request(
    bot: Repository, pull: int, ask: Ask
) -> None:
    head = bot.get_pull(pull).head.sha
    first, second = (bot.create_check_run("plan", head).id for _ in range(2))
    other = bot.create_check_run("other", head).id
    commit = bot.get_commit(head)
    assert {run.id for run in commit.get_check_runs()} == {second, other}
    assert {run.id for run in commit.get_check_runs(filter="all")} == {first, second, other}
    assert [run.id for run in commit.get_check_runs(check_name="plan")] == [second]
    by_branch = ask("GET", "/commits/warm/check-runs").json()
    assert by_branch["total_count"] == 2


def test_a_check_run_that_is_not_valid_changes_nothing(bot: Repository, pull: int) -> None:
    made = bot.create_check_run("plan", bot.get_pull(pull).head.sha)
    for wrong in (
        {"status": "completed"},
        {"conclusion": "splendid"},
        {"output": {"title": "t", "summary": "s" * 65_536}, "status": "in_progress"},
    ):
        with pytest.raises(GithubException) as refused:
            made.edit(**wrong)
        assert refused.value.status == 422
    assert bot.get_check_run(made.id).status == "queued"
    with pytest.raises(GithubException):
        bot.create_check_run("plan", "0" * 40)
