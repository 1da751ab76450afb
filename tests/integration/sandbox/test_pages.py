"""The web pages: what a visitor sees, and that their forms do what the API does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from bot.fake_github.server import Sandbox
from runner.cli import new
from tests.sandbox.fixtures import NAME

Told = Callable[[str], list[dict[str, Any]]]
DECLARATION = "experiments/warm/experiment.yaml"


class Visitor:
    """Somebody with a browser."""

    def __init__(self, url: str) -> None:
        self._root = f"{url}/{NAME}"
        self._session = requests.Session()

    def get(self, where: str = "", /, **more: Any) -> requests.Response:
        return self._session.get(self._root + where, timeout=10, **more)

    def send(self, where: str, /, persona: str = "ada", **fields: Any) -> requests.Response:
        data = {"persona": persona, **fields}
        return self._session.post(self._root + where, data=data, timeout=10)


@pytest.fixture
def visitor(url: str) -> Iterator[Visitor]:
    return Visitor(url)


def declare(visitor: Visitor, **fields: str) -> requests.Response:
    sent = {
        "branch": "warm", "path": DECLARATION, "content": "title: Warm\r\n", "title": "Warm",
        "body": "Preregistered in #1",
    }  # fmt: skip
    return visitor.send("/compare", **sent | fields)


def test_the_front_page_lists_threads_and_forms(visitor: Visitor, sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "Is <b>this</b> escaped?")
    page = visitor.get().text
    assert "Is &lt;b&gt;this&lt;/b&gt; escaped?" in page
    assert "/issues/new?template=experiment.yml" in page
    assert "a stand-in for GitHub on this machine" in page
    for who in ("Ada", "Sam", "Grace"):
        assert who in page


def test_the_front_page_begins_as_the_readme_does_and_its_links_lead_to_files(
    visitor: Visitor, sandbox: Sandbox
) -> None:
    readme = (
        b"# Lab\n\n![](badge.svg)\n\n**A lab** with [docs](docs/a.md), ![a map](docs/a.png) and "
        b"[more](https://lab.example).\n\nNot this."
    )
    sandbox.commit("grace", "main", {"README.md": readme, "docs/a.md": b"x"}, "Say more")
    page, root = visitor.get().text, "/regatta-lab/lab"
    assert "<strong>A lab</strong>" in page
    assert f'href="{root}/blob/main/docs/a.md"' in page
    assert f'src="{root}/raw/main/docs/a.png"' in page
    assert 'href="https://lab.example"' in page
    assert "Not this" not in page
    assert visitor.get("/blob/main/docs/a.md").ok


def test_a_new_pull_request_begins_with_the_starter(visitor: Visitor, sandbox: Sandbox) -> None:
    sandbox.world.starter = new.first("experiments/my-experiment")
    page = visitor.get("/compare").text
    assert "regatta plan experiments/my-experiment" in page
    assert "train: {" in page


def test_the_form_is_shown_with_its_fields_and_values(visitor: Visitor) -> None:
    page = visitor.get("/issues/new", params={"template": "experiment.yml"}).text
    for expected in (
        "Hypothesis", "- metric: eval/bpb", "<option >replication</option>", "1 hour",
        "I would run it again", 'value="[experiment] "', "<strong>asking in the open</strong>",
    ):  # fmt: skip
        assert expected in page
    assert visitor.get("/issues/new", params={"template": "none.yml"}).status_code == 404


def test_a_form_that_was_filled_in_opens_an_issue(
    visitor: Visitor, sandbox: Sandbox, told: Told
) -> None:
    sent = {
        "template": "experiment.yml", "title": "[experiment] Warm", "hypothesis": "It pays.",
        "predictions": "- a\r\n- b", "kind": "", "budget": "",
        "promises": "I have looked for an earlier one",
    }  # fmt: skip
    page = visitor.send("/issues/new", "sam", **sent)
    assert page.url.endswith("/issues/1")
    issue = sandbox.issue(1)
    assert issue.body is not None
    assert issue.body.startswith(
        "### Hypothesis\n\nIt pays.\n\n### Predictions\n\n```yaml\n- a\n- b"
    )
    assert [each.name for each in issue.labels] == ["experiment: wishlist"]  # a form may label
    assert told("issues")[0]["sender"]["login"] == "sam"


def test_a_form_that_lacks_something_keeps_what_was_written(
    visitor: Visitor, sandbox: Sandbox
) -> None:
    sent = {"template": "experiment.yml", "title": "T", "hypothesis": "", "budget": "2 <hours>"}
    answer = visitor.send("/issues/new", **sent)
    assert answer.status_code == 422
    assert "This field is required." in answer.text
    assert "2 &lt;hours&gt;" in answer.text
    assert sandbox.world.issues == {}


def test_comments_are_written_edited_and_deleted(visitor: Visitor, sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "A question")
    page = visitor.send("/issues/1/comment", "grace", body="**hello**", state="")
    assert "<strong>hello</strong>" in page.text
    (comment,) = sandbox.issue(1).comments
    visitor.send(f"/comments/{comment.id}/edit", "grace", body="edited")
    assert "· edited" in visitor.get("/issues/1").text
    refused = visitor.send(f"/comments/{comment.id}/edit", "sam", body="Sam was here")
    assert refused.status_code == 403
    assert comment.body == "edited"
    visitor.send(f"/comments/{comment.id}/edit", "grace", delete="yes", body="edited")
    assert sandbox.issue(1).comments == []


def test_a_comment_can_close_and_reopen(visitor: Visitor, sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "A question")
    visitor.send("/issues/1/comment", body="Done here.", state="closed")
    assert (sandbox.issue(1).state, len(sandbox.issue(1).comments)) == ("closed", 1)
    visitor.send("/issues/1/comment", body="", state="open")
    assert (sandbox.issue(1).state, len(sandbox.issue(1).comments)) == ("open", 1)
    visitor.send("/issues/1/edit", title="A better question", body="because")
    assert sandbox.issue(1).title == "A better question"


def test_labels_that_change_at_once_share_a_line(visitor: Visitor, sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "A question")
    sandbox.set_labels("regatta-lab[bot]", 1, ["planned", "cpu"])
    sandbox.set_labels("regatta-lab[bot]", 1, ["running", "cpu"])
    sandbox.world.clock.advance(60)
    sandbox.set_labels("regatta-lab[bot]", 1, ["done"])
    assert visitor.get("/issues/1").text.count('class="event"') == 2


def test_a_pull_request_is_declared_and_pushed_to(
    visitor: Visitor, sandbox: Sandbox, told: Told
) -> None:
    sandbox.open_issue("ada", "A question")
    page = declare(visitor)
    assert page.url.endswith("/pull/2")
    assert "+title: Warm" in page.text
    first = sandbox.pull(2).pull
    assert first is not None
    assert sandbox.world.git.file(first.head_sha, DECLARATION) == b"title: Warm\n"
    before = first.head_sha
    visitor.send("/pull/2/push", path=DECLARATION, content="title: Warmer\r\n", message="")
    synchronize = told("pull_request")[-1]
    assert (synchronize["action"], synchronize["before"]) == ("synchronize", before)
    assert "+title: Warmer" in visitor.get("/issues/2").text  # leads to /pull/2


def test_a_pull_request_that_cannot_be_made_says_why(visitor: Visitor, sandbox: Sandbox) -> None:
    assert declare(visitor).status_code == 200
    again = declare(visitor)
    assert again.status_code == 422
    assert "exists already" in again.text
    for path in ("../escape", "", ".git/config"):
        assert declare(visitor, branch="other", path=path).status_code == 422
    assert "title: Warm" in again.text  # what was written is still there
    assert len(sandbox.world.issues) == 1
    assert "other" not in sandbox.world.git.branches()


def test_a_user_without_push_declares_from_a_fork_on_the_pages(
    visitor: Visitor, sandbox: Sandbox
) -> None:
    assert "sam:warm" in declare(visitor, persona="sam").text
    pull = sandbox.pull(1).pull
    assert pull is not None
    assert pull.head_repository == sandbox.fork("sam").world.repository_id
    before = pull.head_sha
    visitor.send("/pull/1/push", "sam", path=DECLARATION, content="title: W", message="")
    assert pull.head_sha != before
    page = visitor.send("/pull/1/review", "grace", event="APPROVE", body="Go.\n\n/run")
    assert "approved" in page.text
    (review,) = pull.reviews
    visitor.send("/pull/1/dismiss", "ada", review=str(review.id), message="Not yet.")
    assert "dismissed a review: Not yet." in visitor.get("/pull/1").text
    visitor.send("/pull/1/change", "sam", what="draft", base="main")
    assert ">Ready for review<" in visitor.get("/pull/1").text
    visitor.send("/pull/1/change", "sam", what="ready", base="main")
    assert visitor.send("/pull/1/change", "sam", what="merge", base="main").status_code == 403
    assert "Merged" in visitor.send("/pull/1/change", "grace", what="merge", base="main").text


def test_a_check_runs_button_is_pressed_by_who_may_write(
    visitor: Visitor, sandbox: Sandbox, told: Told
) -> None:
    declare(visitor)
    pull = sandbox.pull(1).pull
    assert pull is not None
    button = {"label": "Cancel", "identifier": "cancel", "description": "Stop it"}
    run = sandbox.create_check_run(
        "regatta-lab[bot]", name="regatta / x", head_sha=pull.head_sha, actions=[button]
    )
    assert ">Cancel<" in visitor.get(f"/runs/{run.id}").text
    assert visitor.send(f"/runs/{run.id}/press", "sam", identifier="cancel").status_code == 403
    assert visitor.send(f"/runs/{run.id}/press", "ada", identifier="retry").status_code == 404
    assert visitor.send(f"/runs/{run.id}/press", "ada", identifier="cancel").status_code == 200
    (pressed,) = told("check_run")
    assert pressed["requested_action"] == {"identifier": "cancel"}
    assert (pressed["sender"]["login"], pressed["check_run"]["id"]) == ("ada", run.id)


def test_checks_show_with_summary_and_picture(visitor: Visitor, sandbox: Sandbox) -> None:
    declare(visitor)
    pull = sandbox.pull(1).pull
    assert pull is not None
    run = sandbox.create_check_run(
        "regatta-lab[bot]", name="regatta / plan", head_sha=pull.head_sha, conclusion="success",
        output={
            "title": "6 runs", "summary": "**2** arms",
            "images": [{"alt": "curves", "image_url": f"/{NAME}/raw/main/x.png"}],
        },
    )  # fmt: skip
    page = visitor.get("/pull/1").text
    for expected in ("regatta / plan", "6 runs", "<strong>2</strong> arms", 'alt="curves"'):
        assert expected in page
    assert "6 runs" in visitor.get(f"/runs/{run.id}").text


def test_nobody_can_act_as_the_bot(visitor: Visitor, sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "A question")
    for persona in ("regatta-lab[bot]", "regatta-lab", "nobody", ""):
        refused = visitor.send("/issues/1/comment", persona, body="/run", state="")
        assert refused.status_code == 404
    assert sandbox.issue(1).comments == []


def test_the_live_part_is_304_until_something_happens(visitor: Visitor, sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "A question")
    first = visitor.get("/issues/1/live")
    assert "<html" not in first.text
    headers = {"If-None-Match": first.headers["ETag"]}
    sandbox.world.clock.advance(60)
    same = visitor.get("/issues/1/live", headers=headers)
    assert (same.status_code, same.headers["X-Now"]) == (304, "2030-01-02T03:05:05Z")
    comment = sandbox.comment("sam", 1, "hello")
    changed = visitor.get("/issues/1/live", headers=headers)
    assert f'id="issuecomment-{comment.id}"' in changed.text
    sandbox.react("ada", comment, "eyes")
    assert "👀 1" in visitor.get("/issues/1/live").text


def test_a_page_loads_nothing_from_outside_and_runs_only_its_own_script(
    visitor: Visitor, sandbox: Sandbox
) -> None:
    sandbox.open_issue("sam", "x", "<script>alert(1)</script> ![x](https://evil.example/x.png)")
    page = visitor.get("/issues/1")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert page.text.count("<script") == 1
    assert 'src="https://' not in page.text


def test_a_file_is_served_at_any_commit_and_never_as_a_page(
    visitor: Visitor, sandbox: Sandbox
) -> None:
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    sha = sandbox.commit("ada", "files", {"a.svg": svg, "a.html": b"<b>", "a.png": b"\x89PNG"}, "x")
    sandbox.commit("ada", "files", {"a.png": None}, "y")
    picture = visitor.get(f"/raw/{sha}/a.png")
    assert (picture.content, picture.headers["Content-Type"]) == (b"\x89PNG", "image/png")
    drawing = visitor.get(f"/raw/{sha}/a.svg")
    assert drawing.headers["Content-Type"] == "image/svg+xml"
    for name in ("a.svg", "a.html"):
        answer = visitor.get(f"/raw/{sha}/{name}")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert visitor.get(f"/raw/{sha}/a.html").headers["Content-Type"].startswith("text/plain")
    assert visitor.get("/raw/files/a.png").status_code == 404
    assert "&lt;b&gt;" in visitor.get(f"/blob/{sha}/a.html").text
    assert "a.svg" in visitor.get(f"/commit/{sha}").text


def test_a_missing_page_is_a_page_that_says_so(visitor: Visitor) -> None:
    for path in ("/issues/99", "/pull/1", "/runs/1", "/commit/none", "/comments/1/edit", "/no"):
        answer = visitor.get(path)
        assert answer.status_code == 404
        assert "<html" in answer.text


def test_every_address_that_the_api_gives_leads_to_a_page(
    visitor: Visitor, sandbox: Sandbox, ask: Callable[..., requests.Response]
) -> None:
    declare(visitor)
    pull = sandbox.pull(1).pull
    assert pull is not None
    sandbox.comment("sam", 1, "hello")
    sandbox.create_check_run("regatta-lab[bot]", name="plan", head_sha=pull.head_sha)
    runs = ask("GET", f"/commits/{pull.head_sha}/check-runs").json()["check_runs"]
    answers = [
        ask("GET", "").json(),
        *ask("GET", "/issues").json(),
        *ask("GET", "/issues/comments").json(),
        *ask("GET", "/pulls").json(),
        *runs,
        ask("GET", f"/commits/{pull.head_sha}").json(),
        ask("GET", "/contents/README.md").json(),
    ]
    for address in [each["html_url"] for each in answers] + [answers[2]["user"]["avatar_url"]]:
        assert requests.get(address, timeout=10).status_code == 200, address
