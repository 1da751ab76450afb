"""Bad input is answered where the person sees it, with file, line, field and the near miss.

Nothing is started and nothing is lost: a mended file or issue goes its way.
"""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from bot.github import GitHub
from bot.inbox import webhook
from tests.rendered import live, unescaped
from tests.scenarios.lab import EXPERIMENT, PREDICTIONS, SECRET, TEXT, Lab, a_lab, form_body
from tests.unit.bot.test_words import JSON

FILE = "experiments/warm/experiment.yaml"
GOOD = {FILE: EXPERIMENT.encode(), "experiments/warm/text.txt": TEXT.encode()}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with a_lab(tmp_path) as lab:
        yield lab


def propose(lab: Lab, files: Mapping[str, bytes | None]) -> int:
    """Ada opens a pull request with these files."""
    lab.sandbox.commit("ada", "warm", files, "Declare an experiment")
    pull = lab.sandbox.open_pull("ada", "Warmer learning rate", "", "warm")
    lab.settle()
    return pull.number


def tree(lab: Lab, entries: list[tuple[str, str, str | None]]) -> int:
    """A pull request whose commit has entries that no file upload makes: (path, mode, SHA)."""
    git = lab.sandbox.world.git
    main = git.ref("refs/heads/main")
    assert main
    by = lab.sandbox.signature(lab.sandbox.user("ada"))
    sha = git.write_commit(git.write_tree(main, entries), [main], "Odd files", by, by)
    lab.sandbox.create_ref("ada", "refs/heads/warm", sha)
    pull = lab.sandbox.open_pull("ada", "Odd", "", "warm")
    lab.settle()
    return pull.number


def blob(lab: Lab, content: bytes) -> str:
    return lab.sandbox.world.git.write_blob(content)


def last_comment(lab: Lab, number: int) -> int:
    """The id of the newest comment that a person wrote."""
    comments = lab.sandbox.issue(number).comments
    return next(c.id for c in reversed(comments) if not lab.sandbox.is_app(c.user))


def mended(lab: Lab, pull: int, files: Mapping[str, bytes | None] = GOOD) -> None:
    """A pull request with problems: nothing was started, and a push that mends them plans."""
    assert lab.trainer.submissions == []
    head = lab.sandbox.pull(pull).pull
    assert head
    (check,) = lab.sandbox.check_runs(head.head_sha)
    assert (check.name, check.conclusion) == ("regatta / plan", "failure")
    lab.clock.advance(1)
    lab.say("grace", pull, "/run")
    assert "lists problems; push a correction first" in lab.last(pull)
    lab.clock.advance(1)
    lab.sandbox.commit("ada", "warm", files, "Mend it")
    lab.settle()
    assert lab.last(pull).startswith("### Plan 2: Does a warmer learning rate pay off")
    assert lab.trainer.submissions == []


# ── Declarations ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("seeds: [0, 1, 2]", "seeds: [0, 1, 2", "line 9: it is not YAML: expected ',' or ']'"),
        (
            "num_layers",
            "num_layer",
            "line 4, `model.num_layer`: unknown key; did you mean `num_layers`?",
        ),
        ("num_layers: 2, ", "", "line 4, `model.num_layers`: is missing"),
        ("resources: {kind: cpu, count: 1}\n", "", "line 1, `resources`: is missing"),
        (
            "num_layers: 2",
            "num_layers: two",
            "line 4, `model.num_layers`: must be a whole number, not `two`",
        ),
        (
            "num_layers: 2",
            "num_layers: 2.0",
            "line 4, `model.num_layers`: must be a whole number, not `2.0`",
        ),
        ("0.003,", "fast,", "line 5, `train.learning_rate`: must be a number, not `fast`"),
        (
            "num_heads: 2",
            "num_heads: 3",
            "line 4, `model.num_heads`: num_heads 3 does not divide hidden_dim 16; choose",
        ),
        (
            "kind: cpu",
            "kind: h1000",
            "line 7, `resources.kind`: the lab has no devices of kind `h1000`",
        ),
        ("[0, 1, 2]", "[0, 1, 1]", "line 8, `seeds`: a seed is here twice"),
        (
            "preregistration: 1",
            "preregistration: 7",
            "line 2, `preregistration`: #7 is not a sealed preregistration",
        ),
        (
            "preregistration: 1",
            "preregistration: one",
            "line 2, `preregistration`: must be a whole number, not `one`",
        ),
        (
            "slow: {train: {learning_rate: 0.0003}}",
            "slow: {train: {learning_rat: 0.0003}}",
            "line 10, `arms.slow.train.learning_rat`: unknown key; did you mean `learning_rate`?",
        ),
        (
            "  slow:",
            "  slaw:",
            "line 9, `arms`: the preregistration predicts something of the arm `slow`, "
            "which is not here; did you mean `slaw`?",
        ),
        ("  fast: {}", "  fast: {}\n  fast: {}", "line 12, `arms.fast`: this key is here twice"),
        (
            "text.txt",
            "../../warm.txt",
            "line 3, `data.source`: data source '../../warm.txt' is neither stdlib nor",
        ),
        (
            "text.txt",
            "/etc/passwd",
            "line 3, `data.source`: data source '/etc/passwd' is neither stdlib nor",
        ),
        (
            "text.txt",
            "novel.txt",
            "line 3, `data.source`: data source 'novel.txt' is not a file in",
        ),
        ("text.txt", "a" * 5000, "line 3, `data.source`: no file can have this name"),
        (
            "eval: {tokens: 64}",
            "eval: {tokens: 6400}",
            "line 3, `data.source`: the validation split of text.txt",
        ),
    ],
)
def test_a_declaration_that_cannot_run_is_answered_with_file_line_and_field(
    lab: Lab, was: str, now: str, said: str
) -> None:
    assert EXPERIMENT.count(was) == 1
    lab.preregister()
    pull = propose(lab, {**GOOD, FILE: EXPERIMENT.replace(was, now).encode()})
    answer = lab.last(pull)
    assert answer.startswith("### Plan 1: this cannot run yet")
    assert f"{FILE}, {said}" in unescaped(answer)
    assert lab.labels(1) == ["experiment: wishlist"]
    mended(lab, pull)


def test_everything_that_is_wrong_is_said_at_once_in_the_order_of_the_lines(lab: Lab) -> None:
    lab.preregister()
    declaration = EXPERIMENT.replace("num_layers", "num_layer").replace("0.003,", "fast,")
    pull = propose(lab, {**GOOD, FILE: declaration.encode()})
    answer = lab.last(pull)
    first, second = [line for line in answer.splitlines() if line.startswith("- ")]
    assert "line 4, `model.num_layer`" in first
    assert "line 5, `train.learning_rate`" in second
    head = lab.sandbox.pull(pull).pull
    assert head
    assert lab.sandbox.check_runs(head.head_sha)[0].title == "2 problems"


def test_mistakes_of_all_stages_are_said_at_once_and_start_nothing(lab: Lab) -> None:
    lab.preregister()
    declaration = EXPERIMENT.replace("seeds:", "seds:").replace("num_layers: 2", "num_layers: two")
    declaration = declaration.replace("preregistration: 1", "preregistration: 7")
    declaration = declaration.replace("text.txt", "novel.txt")
    pull = propose(lab, {**GOOD, FILE: declaration.encode()})
    answer = unescaped(lab.last(pull))
    said = [line for line in answer.splitlines() if line.startswith("- ")]
    assert [line.partition(": ")[0] for line in said] == [
        f"- {FILE}, line 2, `preregistration`",
        f"- {FILE}, line 3, `data.source`",
        f"- {FILE}, line 4, `model.num_layers`",
        f"- {FILE}, line 8, `seds`",
    ]
    mended(lab, pull)


def test_a_link_in_place_of_the_declaration_is_not_followed(lab: Lab) -> None:
    lab.preregister()
    pull = tree(lab, [(FILE, "120000", blob(lab, b"../../secret.yaml"))])
    assert "is a link; add the file itself" in lab.last(pull)


def test_a_submodule_in_place_of_the_declaration_is_not_followed(lab: Lab) -> None:
    lab.preregister()
    text = blob(lab, TEXT.encode())
    pull = tree(lab, [(FILE, "160000", "1" * 40), ("experiments/warm/text.txt", "100644", text)])
    assert "is a submodule; add its files themselves" in lab.last(pull)


def test_a_link_in_place_of_the_text_is_not_followed(lab: Lab) -> None:
    lab.preregister()
    pull = tree(
        lab,
        [
            (FILE, "100644", blob(lab, EXPERIMENT.encode())),
            ("experiments/warm/text.txt", "120000", blob(lab, b"/etc/passwd")),
        ],
    )
    assert f"{FILE}, line 3, `data.source`: " in lab.last(pull)
    assert "text.txt is a link; add the file itself" in lab.last(pull)


def test_a_text_whose_name_no_disk_can_hold_is_refused_in_words(lab: Lab) -> None:
    lab.preregister()
    name = "t" * 300 + ".txt"
    experiment = EXPERIMENT.replace("text.txt", name).encode()
    pull = propose(lab, {FILE: experiment, f"experiments/warm/{name}": TEXT.encode()})
    assert f"{FILE}, line 3, `data.source`: no file can have this name" in lab.last(pull)
    mended(lab, pull)


def test_a_huge_declaration_is_not_read(lab: Lab) -> None:
    lab.preregister()
    huge = b"# " + b"x" * 5_000_001
    pull = propose(lab, {**GOOD, FILE: huge})
    assert "is larger than 5,000,000 bytes" in lab.last(pull)
    blob = hashlib.sha1(b"blob %d\0" % len(huge) + huge).hexdigest()
    fetched = [r.path for r in lab.sandbox.requests if "/git/blobs/" in r.path]
    assert fetched, "the lab's own files are read"
    assert not any(path.endswith(blob) for path in fetched)
    mended(lab, pull)


def test_a_long_declaration_is_refused_with_its_limit(lab: Lab) -> None:
    lab.preregister()
    pull = propose(lab, {**GOOD, FILE: EXPERIMENT.encode() + b"# x\n" * 30_000})
    assert f"{FILE}, line 1: it is longer than 100,000 bytes" in lab.last(pull)
    mended(lab, pull)


def test_a_huge_text_is_not_read(lab: Lab) -> None:
    lab.preregister()
    pull = propose(lab, {**GOOD, "experiments/warm/text.txt": b"x" * 5_000_001})
    assert f"{FILE}, line 3, `data.source`: " in lab.last(pull)
    assert "is larger than 5,000,000 bytes" in lab.last(pull)
    mended(lab, pull)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "line 1: it is not UTF-8 text"),
        (b"title: a\x00b\n", "line 1: it holds a character that YAML forbids"),
        (b"", "line 1: it is empty"),
        (b"just words\n", "line 1: it must be a mapping with keys such as"),
        (b"- title: a\n", "line 1: it must be a mapping with keys such as"),
        (b"a: &x 1\nb: *x\n", "line 2: an alias"),
        (b"title: !!python/object/apply:os.system [id]\n", "line 1: the tag"),
        (b"[" * 50_000, "line 1: it is nested deeper than 20 levels"),
    ],
)
def test_a_file_that_is_no_declaration_is_named(lab: Lab, content: bytes, said: str) -> None:
    lab.preregister()
    pull = propose(lab, {**GOOD, FILE: content})
    assert f"{FILE}, {said}" in lab.last(pull)
    mended(lab, pull)


def test_a_text_that_is_not_utf8_is_named(lab: Lab) -> None:
    lab.preregister()
    pull = propose(lab, {**GOOD, "experiments/warm/text.txt": b"\xff\xfe" * 500})
    assert "line 3, `data.source`: data source 'text.txt' is not UTF-8 text" in lab.last(pull)
    mended(lab, pull)


def test_a_folder_without_a_declaration_is_named(lab: Lab) -> None:
    lab.preregister()
    pull = propose(lab, {"experiments/warm/text.txt": TEXT.encode()})
    assert f"{FILE}: there is no such file" in lab.last(pull)
    mended(lab, pull)


def test_two_experiments_in_one_pull_request_are_refused_by_name(lab: Lab) -> None:
    lab.preregister()
    other = "experiments/other/experiment.yaml"
    pull = propose(lab, {**GOOD, other: EXPERIMENT.encode()})
    assert "One pull request declares one experiment" in lab.last(pull)
    assert "`other`, `warm`" in lab.last(pull)
    mended(lab, pull, {other: None})


def test_a_folder_whose_name_is_markup_is_refused_and_shown_literally(lab: Lab) -> None:
    lab.preregister()
    name = "`@grace` ![x](http:evil) <b> #1"
    pull = propose(lab, {f"experiments/{name}/experiment.yaml": EXPERIMENT.encode()})
    assert "may have letters, digits" in lab.last(pull)
    assert live(lab.last(pull)) == [*JSON, "<!-- regatta: plan.1 -->"]


def test_a_pull_request_that_touches_nothing_under_experiments_gets_no_word(lab: Lab) -> None:
    pull = propose(lab, {"README.md": b"Hello\n", "experiments/README.md": b"What lies here\n"})
    assert lab.comments(pull) == []
    head = lab.sandbox.pull(pull).pull
    assert head
    assert lab.sandbox.check_runs(head.head_sha) == []
    lab.say("grace", pull, "/run")
    assert "There is no plan here; one comes when the branch changes" in lab.last(pull)
    assert lab.trainer.submissions == []


def test_a_declaration_comes_to_a_pull_request_that_had_none(lab: Lab) -> None:
    lab.preregister()
    pull = propose(lab, {"README.md": b"Hello\n"})
    lab.clock.advance(1)
    lab.sandbox.commit("ada", "warm", GOOD, "And an experiment")
    lab.settle()
    assert lab.last(pull).startswith("### Plan 1: Does a warmer")


def test_a_plan_that_waited_for_a_seal_is_made_when_the_thread_is_looked_at_again(
    lab: Lab,
) -> None:
    issue = lab.preregister(form_body(predictions="- metric: eval/bpb"))
    pull = propose(lab, GOOD)
    assert "is not a sealed preregistration of this repository" in lab.last(pull)
    lab.sandbox.edit_issue("ada", issue, body=form_body())
    lab.settle()
    assert lab.last(issue).startswith("### Sealed")
    lab.say("ada", pull, "The issue is sealed now.")
    assert lab.last(pull).startswith("### Plan 2: Does a warmer")


# ── Preregistrations ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("hypothesis", "predictions", "said"),
    [
        ("", PREDICTIONS, "`Hypothesis` is empty"),
        ("So it is.", "", "`Predictions` is empty"),
        (
            "So it is.",
            "warmer is better",
            "must be a YAML list; begin each prediction with `- metric:`",
        ),
        ("So it is.", "- metric: [eval/bpb", "`Predictions`, line 1: it is not YAML"),
        (
            "So it is.",
            PREDICTIONS.replace("eval/bpb", "eval/loss", 1),
            "`Predictions`, line 1, `metric`: the lab measures no `eval/loss`; it measures",
        ),
        (
            "So it is.",
            PREDICTIONS.replace("versus", "verses"),
            "line 3, `verses`: unknown key; did you mean `versus`?",
        ),
        ("So it is.", PREDICTIONS.replace("  arm: fast\n", "", 1), "line 1, `arm`: is missing"),
        (
            "So it is.",
            PREDICTIONS.replace('"< -0.05"', "> 1.5"),
            'write `expect: "> 1.5"` in quotes',
        ),
        (
            "So it is.",
            PREDICTIONS.replace('"< -0.05"', "less"),
            "line 4, `expect`: 'less' is not a range; write",
        ),
        (
            "So it is.",
            PREDICTIONS.replace("80 %", "180 %"),
            "line 5, `confidence`: it should be less than 1",
        ),
        ("So it is.", PREDICTIONS.replace("80 %", "1.2.3 %"), "line 5, `confidence`"),
        ("So it is.", PREDICTIONS.replace("80 %", "sure"), "line 5, `confidence`"),
        (
            "So it is.",
            PREDICTIONS.replace("versus: slow", "versus: so slow"),
            "line 3, `versus`: 'so slow' can be no arm's name",
        ),
        (
            "So it is.",
            PREDICTIONS.replace("arm: fast", "arm: 1", 1),
            "line 2, `arm`: must be text",
        ),
        ("So it is.", "- fast\n- slow\n", "line 2: must be a mapping"),
        ("So it is.", PREDICTIONS * 11, "has more than 20 entries"),
    ],
)
def test_an_issue_that_cannot_be_sealed_says_why_and_an_edit_seals_it(
    lab: Lab, hypothesis: str, predictions: str, said: str
) -> None:
    issue = lab.preregister(form_body(hypothesis, predictions))
    (answer,) = lab.comments(issue)
    assert answer.startswith("### Not sealed yet")
    assert said in unescaped(answer)
    assert lab.labels(issue) == []
    assert lab.records("preregistrations") == {}
    lab.clock.advance(1)
    lab.sandbox.edit_issue("ada", issue, body=form_body())
    lab.settle()
    assert lab.last(issue).startswith("### Sealed")
    assert lab.labels(issue) == ["experiment: wishlist"]


def test_an_empty_form_names_both_fields(lab: Lab) -> None:
    issue = lab.preregister(form_body("", ""))
    assert "`Hypothesis` is empty" in lab.last(issue)
    assert "`Predictions` is empty" in lab.last(issue)


def test_the_same_mistake_after_an_edit_elsewhere_is_said_again_and_nothing_else(
    lab: Lab,
) -> None:
    issue = lab.preregister(form_body(predictions=""))
    for text in ("Once more.", "And again."):
        lab.clock.advance(1)
        lab.sandbox.edit_issue("ada", issue, body=form_body(text, ""))
        lab.settle()
    assert [c.splitlines()[0] for c in lab.comments(issue)] == ["### Not sealed yet"] * 3


def test_a_closed_issue_is_sealed_when_it_is_opened_again(lab: Lab) -> None:
    assert lab.bot is not None
    issue = lab.sandbox.open_issue("ada", "Experiment", form_body()).number
    lab.sandbox.edit_issue("ada", issue, state="closed")
    lab.settle()
    assert lab.comments(issue) == []
    lab.sandbox.edit_issue("ada", issue, state="open")
    lab.settle()
    assert lab.last(issue).startswith("### Sealed")


# ── Commands and deliveries ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("planned", [False, True])
def test_run_on_an_issue_is_sent_to_the_pull_request(lab: Lab, planned: bool) -> None:
    issue = lab.preregister()
    if planned:
        lab.propose()
    lab.say("grace", issue, "/run")
    assert "comment on the pull request" in lab.last(issue)
    assert lab.trainer.submissions == []


def test_run_by_a_stranger_says_who_may(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    for who in ("sam", "ada"):
        lab.say(who, pull, "/run")
        assert f"`/run` by {who}" in lab.last(pull)
        assert "Only people with the role `maintain` or `admin` may use `/run`" in lab.last(pull)
    assert lab.trainer.submissions == []


def test_run_with_words_after_it_starts_nothing_and_shows_them_harmlessly(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.say("grace", pull, "/run --seeds=9 @sam #1")
    _, refusal, again = lab.comments(pull)
    assert "`--seeds=9` is neither `arms=` nor `seeds=`; write `seeds=9`; `@sam` is" in refusal
    assert live(refusal) == [*JSON, f"<!-- regatta: refused.{last_comment(lab, pull)}-0 -->"]
    assert again.startswith("### Plan 2")
    assert lab.trainer.submissions == []


def test_a_delivery_with_a_wrong_signature_is_answered_401_and_not_kept(lab: Lab) -> None:
    assert lab.gate is not None
    app = FastAPI()
    app.include_router(webhook.routes(lab.gate))
    body = json.dumps({"action": "created"}).encode()

    def post(signature: str | None) -> httpx.Response:
        headers = {"X-GitHub-Delivery": "d-1", "X-GitHub-Event": "issue_comment"}
        if signature is not None:
            headers["X-Hub-Signature-256"] = signature

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
                return await client.post("/webhook", content=body, headers=headers)

        return asyncio.run(ask())

    right = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert post(right).status_code == 200
    for wrong in (None, "", right[:-1], right.upper(), right.removeprefix("sha256="), "sha1=00"):
        assert post(wrong).status_code == 401
    assert lab.records("inbox") == {}


def test_a_marker_inside_a_comment_is_not_taken_for_the_bots_own(lab: Lab) -> None:
    issue = lab.preregister()
    # People with write access can edit the bot's comments too.
    sealed = lab.sandbox.issue(issue).comments[0]
    edited = f"<!-- regatta: plan.1 -->\n\n{sealed.body}"
    lab.sandbox.edit_comment("ada", sealed.id, edited)
    github = GitHub(
        "regatta-lab/lab", lambda: "installation-token", api=f"{lab.sandbox.url}/api/v3"
    )
    assert github.my_comments(issue, "<!-- regatta: plan.1 -->") == []
    assert [made.id for made in github.my_comments(issue, "<!-- regatta: sealed -->")] == [
        sealed.id
    ]
