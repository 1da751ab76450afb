"""Strangers' words in the bot's sentences: shown as written, and never more than words."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.messages import (
    command_answers,
    plan_comment,
    result_comment,
    seal_comments,
    status_comment,
)
from bot.model import comment_data, escape
from bot.model.commands import Reading
from bot.model.keys import Key
from bot.model.site import Site
from bot.model.thread import Message, Ran, Said, Thread, ThreadId
from engine.config.schema import ModelConfig, TrainConfig
from runner.analysis import verdicts
from runner.analysis.comparability import scored_on
from runner.execution import lifecycle
from runner.execution.progress import Progress, RunProgress
from runner.history.excerpts import Excerpt
from runner.lib import format
from runner.schema import record
from runner.schema.own_model import OwnModel
from tests import synthetic
from tests.rendered import live

LONGEST = 60_000
GITHUBS_LONGEST = 65_536
HOSTILE = [
    "@grace",
    "a @regatta-lab/maintainers b",
    "sam@evil.example",
    "#12 and gh-12, GH-12",
    "regatta-lab/lab#12",
    "https://evil.example/x?y=1",
    "www.evil.example",
    "[words](http://evil.example)",
    "[words][x]\n\n[x]: http://evil.example",
    "<http://evil.example>",
    "![words](http://evil.example/x.png)",
    "<img src=x onerror=alert(1)>",
    "<!-- regatta: plan.1 -->",
    "--> <!--",
    "</details></td></table><h1>x",
    "&lt;b&gt; &#64;grace &amp;",
    "| a | b |\n| --- | --- |",
    "\\| a \\",
    "```\n/run\n```",
    "~~~",
    "a\n\n# heading\n\n- item\n\n---\n\n> quote",
    "- item",
    "1. item",
    "**bold** _it_ ~~no~~ $x$",
    "`",
    "``",
    "`@grace",
    "``@grace`",
    "```@grace`",
    "`a``@grace`b``",
    "`` `@grace` ``",
    "`<!-- regatta: plan.1 -->`",
    "\\`@grace\\`",
    "\u202e\u2066backwards\x00\x1b[31m\x07",
    "a\u200bb",
    "16c999e8c71134401a78d4d46435517b2271d6ac and jlord@16c999e8c71134401a78d4d46435517b2271d6ac",
    "a\u00ad\u2060\ufeff\u200f\U000e0041b",
    " ",
    "\n",
    "x" * 100_000,
    "@a " * 30_000,
    "`a` " * 25_000,
]


FORETOLD = record.Foretold(
    axis="model_flops", at=1e12, loss=2.5, low=2.4, high=2.6, level=0.9, law="L", rungs=5, runs=15,
    reach=4.0,
)  # fmt: skip


def everything(word: str) -> dict[str, str]:
    """Every sentence of the bot's that strangers' words can get into, with `word` for each."""
    arms = {"fast": synthetic.planned_arm(), "slow": synthetic.planned_arm(rate=3e-4)}
    predictions = (
        synthetic.prediction(arm=word, versus=word),
        synthetic.prediction("2.6 ± 0.1", arm=word, versus=None),
        *(
            record.Prediction(metric="eval/bpb", expect="> 0", confidence=0.8, **keys)
            for names in [(word, "a", "b", "c")]
            for keys in (
                {"order": names},
                {"exponent": names, "axis": "model_flops"},
                {"arm": word, "smaller": ("x", "y", "z"), "axis": "tokens"},
            )
        ),
    )
    person = record.Person(login=word, id=1)
    sealed = record.Preregistration(
        repository=1,
        issue=1,
        title=word,
        hypothesis=word,
        predictions=predictions,
        author=person,
        at=synthetic.START,
        text_sha256="0" * 64,
    )
    plan = synthetic.plan(arms=arms, predictions=predictions, preregistration=1, title=word)
    plan = plan.model_copy(update={"data": plan.data.model_copy(update={"source": word})})
    planned = record.PlanRecord(
        repository=1,
        pull=2,
        n=1,
        commit="a" * 40,
        at=synthetic.START,
        plan=plan,
        forecasts={"fast": FORETOLD},
        no_forecast={"slow": f"the lab has already run it, as {word}"},
    )
    bad = planned.model_copy(
        update={"plan": None, "problems": (f"file, line 1: {word}", f"{word}.")}
    )
    approval = record.Approval(
        repository=1,
        pull=2,
        command="1-0",
        by=person,
        role=word,
        at=synthetic.START,
        approved=False,
        why=f"Write `/plan` alone, without `{escape.code(word)}`. {word}",
    )
    cannot = record.Answered(
        command="1-0",
        what="cancel",
        by=person,
        at=synthetic.START,
        yes=False,
        why=f"There is no `{escape.code(word)}`. {word}",
    )
    ran = ran_of(plan, word, person)
    thread = Thread(
        id=ThreadId(1, 2),
        repository="regatta-lab/lab",
        url="https://github.com/regatta-lab/lab",
        now=synthetic.START,
        is_pull=True,
        seal=sealed,
        plans=(planned,),
        executions=(ran,),
        said={Key.parse(f"picture.{ran.execution.id}"): Said("done", 0, None, "b" * 40)},
    )
    edit = record.Edit(at=synthetic.START, text_sha256="0" * 64, text=f"now\n{word}")
    spread = record.Spread(deviation=0.1, arms=3, freedom=6)
    return {
        "sealed": seal_comments.sealed(sealed),
        "not sealed": seal_comments.not_sealed((f"line 1: {word}", f"`{word}` is no key")),
        "edited": seal_comments.edited(sealed, edit, before=f"then\n{word} {word}"),
        "plan": plan_comment.plan(planned),
        "plan with a spread": plan_comment.plan(planned.model_copy(update={"spread": spread})),
        "plan with own code": plan_comment.plan(
            planned.model_copy(update={"plan": with_own(plan, word)})
        ),
        "problems": plan_comment.plan(bad),
        "refused": command_answers.refused(approval),
        "cannot": command_answers.refused(cannot),
        "status": status_comment.status(ran),
        "status of": command_answers.status_of(thread),
        "result": result_comment.result(thread, ran),
        "result with texts": result_comment.result(thread, done(ran), None, wrote(word)),
        "verdict": result_comment.verdict(thread, ran),
        "verdict with deviations": deviating(thread, word, person),
        "folded": plan_comment.folded(planned, 2),
        "type again": command_answers.type_again(Message(1, person, synthetic.START, "/run")),
        "once more": once_more(thread, word, person),
        "pushed to": status_comment.status(ran, head="b" * 40),
    }


def done(ran: Ran) -> Ran:
    """The same, had it ended well."""
    assert ran.result
    result = ran.result.model_copy(update={"state": "done", "why": "", "verdicts": ()})
    return replace(ran, life=replace(ran.life, result=result))


def wrote(word: str) -> list[Excerpt]:
    """What own code wrote as its last word: a table, and a text."""
    cell = word.replace("\n", " ").replace("\r", " ").replace("|", "\\|")
    return [
        Excerpt("compare", "table.md", f"| arm | {cell} |\n| --- | ---: |\n| {cell} | 1 |"),
        Excerpt(word, word, f"{word}\n{word}"),
        Excerpt("compare", "large.md", None),
    ]


def with_own(plan: record.Plan, word: str) -> record.Plan:
    """The plan with one more arm, whose model is the experiment's own, told these words."""
    like = next(iter(plan.arms.values()))
    model = OwnModel(seq_len=256, style=word, **{word[:200]: word})
    unknown = dict.fromkeys(("parameters", "forward_flops_per_token", "model_flops"))
    own = {"own": {"model": f"model:{word}"}, "model": model, **unknown}
    return plan.model_copy(update={"arms": {**plan.arms, "mine": like.model_copy(update=own)}})


def deviating(thread: Thread, word: str, person: record.Person) -> str:
    """The verdict on an execution of another design than the sealed one, after an edit."""
    assert thread.seal
    seal = thread.seal.model_copy(update={"text": f"then\n{word} {word}"})
    edit = record.Edit(at=synthetic.START, text_sha256="1" * 64, text=f"now\n{word}")
    plans = [
        synthetic.plan(arms={word: synthetic.planned_arm(rate=rate)}, predictions=seal.predictions)
        for rate in (3e-3, 3e-4)
    ]
    first, second = (ran_of(plan, word, person) for plan in plans)
    later = synthetic.START + timedelta(hours=1)
    changed = {"id": "x" + "1" * 16, "at": later, "deviations": (word,)}
    changed["plan"] = second.execution.plan.model_copy(update={"fingerprint": "1" * 64})
    execution = second.execution.model_copy(update=changed)
    again = Ran(replace(second.life, execution=execution), second.progress, second.runs)
    return result_comment.verdict(
        replace(thread, seal=seal, edits=(edit,), executions=(first, again)), again
    )


def once_more(thread: Thread, word: str, person: record.Person) -> str:
    """The result of an execution that ran again what another one had run."""
    plan = synthetic.plan()
    first, second = (ran_of(plan, text, person) for text in ("another word", word))
    execution = second.execution.model_copy(update={"id": "x" + "1" * 16})
    execution = execution.model_copy(update={"reproduces": first.execution.id})
    result = record.Result(at=synthetic.START, state="done")
    life = replace(second.life, execution=execution, result=result)
    again = Ran(life, second.progress, second.runs)
    return result_comment.result(replace(thread, executions=(first, again)), again)


def ran_of(plan: record.Plan, word: str, person: record.Person, *, failed: bool = True) -> Ran:
    """An execution that ended; `word` is what the job and the lab had to say about it."""
    origin = record.Origin(
        repository=1,
        repository_name="regatta-lab/lab",
        pull=2,
        plan=1,
        commit="a" * 40,
        approved_by=person,
        approval="1/1-0",
    )
    execution = record.Execution(
        id="x0123456789abcdef",
        at=synthetic.START,
        plan=plan,
        origin=origin,
        forecasts={"fast": FORETOLD},
    )
    runs = tuple(
        synthetic.run(plan, arm, seed, 2.5 + seed / 100, curve=[(1, 2.0), (2, 1.9)])
        if seed % 2 == 0 or not failed
        else synthetic.run(plan, arm, seed, None, state="failed", why=word, curve=[])
        for arm, seed in plan.runs()
    )
    judged = tuple(
        record.Verdict(prediction=prediction, outcome="inconclusive", why=word, n=2)
        for prediction in plan.predictions
    )
    attempts = tuple(
        lifecycle.Attempt(
            name=name,
            folder=f"{execution.id}.{name}-{'0' * 16}",
            claimed=record.Claimed(at=synthetic.START, nonce="0" * 16, spec_sha256="0" * 64),
            started=True,
            ended=record.Ended(
                at=synthetic.START, how=how, why=word, receipt={word or "x": word, "jax": word}
            ),
        )
        for name, how in (("t1", "lost"), ("t2", "finished"))
    )
    result = record.Result(
        at=synthetic.START + timedelta(seconds=71),
        state="failed",
        why=word,
        verdicts=judged,
        refused=(word,) * 20,
        seconds=71.0,
    )
    progress = Progress(
        runs=tuple(RunProgress(run.arm, run.seed, run.steps, 16, 2.5, 9_000.0) for run in runs),
        tokens=100,
        of_tokens=200,
        tokens_per_second=9_000.0,
    )
    facts = lifecycle.Facts(execution, attempts, cancelled=None, voided=None, result=result)
    return Ran(facts, progress, runs)


def blocks(body: str) -> list[str]:
    """A comment's layout: headings, paragraphs, lists, tables and their cells."""
    return [token.type for token in MarkdownIt("commonmark").enable("table").parse(body)]


HARMLESS = everything("words")


@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_strangers_write_is_words_and_changes_no_layout(word: str) -> None:
    for name, body in everything(word).items():
        assert live(body) == live(HARMLESS[name]), name
        assert blocks(body) == blocks(HARMLESS[name]), name
        assert "<!--" not in body, name
        assert len(body) < LONGEST, name
        body.encode()  # what cannot be sent is not said


def test_in_a_harmless_comment_the_live_parts_are_the_labs_own() -> None:
    assert {name: live(body) for name, body in HARMLESS.items() if live(body)} == {
        "edited": details("What the edit changed"),
        "sealed": JSON,
        "cannot": JSON,
        "problems": JSON,
        "refused": JSON,
        "plan": [*details("The exact configuration"), *JSON, "#1"],
        "plan with a spread": [*details("The exact configuration"), *JSON, "#1"],
        "plan with own code": [*details("The exact configuration"), *JSON, "#1"],
        "verdict": [*JSON, "#1", "#2", "#2"],
        "verdict with deviations": [
            *(*details("The difference") * 2, *JSON),
            *("#1", "#2", "#2", "#2", "#2"),
        ],
        "result": [*details("Receipt"), *JSON, picture()],
        "result with texts": [*details("Receipt"), *JSON, picture()],
        "once more": [
            "<details open><summary>The comparison</summary>",
            "</details>",
            *details("Scores and curves of the re-run"),
            *details("Receipt"),
            *JSON,
        ],
        "folded": [
            "<details><summary>Plan 1, for aaaaaaaaaaaa: replaced by plan 2</summary>",
            *details("The exact configuration"),
            *JSON,
            "</details>",
            "#1",
        ],
    }


def details(summary: str) -> list[str]:
    return [f"<details><summary>{summary}</summary>", "</details>"]


JSON = details("For programs (JSON)")


def picture() -> str:
    address = f"https://github.com/regatta-lab/lab/raw/{'b' * 40}/x0123456789abcdef.png"
    return str({"src": address, "alt": ""})


@given(st.text(st.characters(codec="utf-8", exclude_characters="\u200d\ufe0e\ufe0f"), max_size=200))
def test_text_is_shown_as_it_was_written(word: str) -> None:
    """Joiners and variation selectors, which belong to emoji, have a test of their own."""
    shown = _shown("words: " + escape.text(word))
    kept = re.sub(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]", "", word)
    kept = "".join(map(_as_such, kept)) if HIDDEN & {*kept} else kept
    assert shown.replace("\u200b", "") == " ".join(["words:", *kept.split()])


HIDDEN = {
    *map(chr, (0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFEFF, 0xFFA0)),
    *map(chr, (*range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x202A, 0x202F))),
    *map(chr, (*range(0x2060, 0x2070), *range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFFC))),
    *map(chr, (*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000))),
}


def _as_such(letter: str) -> str:
    wide = ord(letter) > 0xFFFF
    return (
        f"\\{'U' if wide else 'u'}{ord(letter):0{8 if wide else 4}x}" * (letter in HIDDEN) or letter
    )


@pytest.mark.parametrize("said", [escape.text, escape.prose, escape.code, escape.fenced])
def test_invisible_and_bidi_characters_are_shown_by_name(
    said: Callable[[str], str],
) -> None:
    for letter in HIDDEN:
        shown = said(f"pay{letter}load")
        assert letter not in shown
        assert f"{ord(letter):x}" in shown


def test_emoji_stay() -> None:
    for word in ("❤️", "👩\u200d🔬", "🏳️\u200d🌈", "👍🏽\u200d", "☎︎"):
        assert escape.text(word) == word
    assert "\u200d" not in escape.text("a\u200db")
    assert "\ufe0f" not in escape.text("a\ufe0f")


SHA = "16c999e8c71134401a78d4d46435517b2271d6ac"


@pytest.mark.parametrize(
    "word",
    [
        SHA,
        SHA.upper(),
        SHA[:7],
        f"see {SHA}.",
        f"0{SHA[:39]}",
        f"jlord@{SHA}",
        f"jlord/sheetsee.js@{SHA}",
        f"{SHA}...{SHA}",
        f"({SHA})",
        f"a-{SHA[:12]}-b",
    ],
)
@pytest.mark.parametrize("said", [escape.text, escape.prose])
def test_a_commits_number_is_shown_and_no_link(said: Callable[[str], str], word: str) -> None:
    shown = _shown("words: " + said(word))
    assert shown.replace("\u200b", "") == f"words: {word}"
    assert not re.findall(r"\b[0-9a-f]{7,40}\b", shown, re.IGNORECASE)


@given(st.text(st.sampled_from("0a9fG_-@/. "), max_size=120))
def test_no_words_hold_what_github_takes_for_a_commit(word: str) -> None:
    shown = _shown("words: " + escape.text(word))
    assert not re.findall(r"\b[0-9a-f]{7,40}\b", shown, re.IGNORECASE)


@given(st.text(st.sampled_from("`@a<!-- >\\|*[]()#1 "), max_size=60))
def test_prose_with_any_backticks_is_harmless(word: str) -> None:
    body = "words: " + escape.prose(word)
    assert live(body) == []
    assert blocks(body) == blocks("words")
    assert "<!--" not in body


@given(st.text(st.sampled_from("`@a<!-- >\\|*[]()#1 "), max_size=60))
def test_code_stays_in_its_span(word: str) -> None:
    (paragraph,) = [
        token for token in MarkdownIt().parse(f"a `{escape.code(word)}` b") if token.children
    ]
    assert [child.type for child in paragraph.children or []] == ["text", "code_inline", "text"]


def test_prose_keeps_the_labs_own_code_spans() -> None:
    said = "line 4, `model.num_layer`: unknown key; did you mean `num_layers`?"
    assert escape.prose(said) == said


def test_a_lone_surrogate_is_left_out() -> None:
    assert escape.text("a\ud800b") == escape.code("a\udfffb") == escape.prose("a\ud8ffb") == "ab"


def test_long_text_is_cut_with_an_ellipsis() -> None:
    assert escape.text("x" * 400) == "x" * 299 + "…"
    assert escape.prose("x" * 700) == "x" * 599 + "…"
    assert escape.code("x" * 130) == "x" * 119 + "…"


def _shown(body: str) -> str:
    return "".join(
        child.content
        for token in MarkdownIt("commonmark").parse(body)
        for child in token.children or []
    )


# ── Large experiments ────────────────────────────────────────────────────────────────────────


def large_plan() -> record.Plan:
    """256 arms that differ in every key, with the longest names there can be."""
    arms = {}
    for n in range(256):
        model = ModelConfig(
            hidden_dim=2**20 - 512 * n,
            intermediate_dim=2**20 - n,
            num_layers=2**12 - n,
            num_heads=2**8,
            seq_len=2**30 + n,
            vocab_size=2**30 + n,
            tie_word_embeddings=bool(n % 2),
        )
        train = TrainConfig(
            train_batch_size=2**30 + n,
            num_train_steps=2**30 + n,
            learning_rate=1 / 3 + n / 1e15,
            lr_schedule="wsd",
            warmup=1 / 7 + n / 1e15,
            decay=1 / 7 + n / 1e15,
            weight_decay=1 / 9 + n / 1e15,
            beta1=8 / 9 + n / 1e15,
            beta2=8 / 9 + n / 1e15,
            epsilon=1 / 9e9 + n / 1e24,
            max_grad_norm=1 / 3 + n / 1e15,
            checkpoint_every=2**30 + n,
        )
        planned = synthetic.planned_arm().model_copy(
            update={"model": model, "train": train, "parameters": 10**30, "tokens": 10**30}
        )
        arms[f"{n:040d}"] = planned
    predictions = [
        synthetic.prediction(arm=f"{n:040d}", versus=f"{n + 1:040d}", expect=f"< -{1 / 3 + n}")
        for n in range(20)
    ]
    return synthetic.plan(arms=arms, seeds=[0], predictions=predictions, preregistration=1)


@pytest.mark.parametrize("failed", [False, True])
def test_an_experiment_of_256_arms_fits_into_comments_that_stay_whole(failed: bool) -> None:
    plan = large_plan()
    planned = record.PlanRecord(
        repository=1, pull=2, n=1, commit="a" * 40, at=synthetic.START, plan=plan
    )
    ran = ran_of(plan, "a reason " * 60, synthetic.GRACE)
    runs = [run.model_copy(update={"state": "failed"}) for run in ran.runs] if failed else ran.runs
    ran = Ran(ran.life, ran.progress, tuple(runs))
    thread = Thread(
        id=ThreadId(1, 2),
        repository="r/l",
        url="https://github.com/r/l",
        now=synthetic.START,
        is_pull=True,
        plans=(planned,),
        executions=(ran,),
    )
    for body in (
        plan_comment.plan(planned),
        status_comment.status(ran),
        result_comment.result(thread, ran),
    ):
        assert len(body) < LONGEST
        assert body.count("<details>") == body.count("</details>")
        assert body.count("```") % 2 == 0
    body = plan_comment.plan(planned)
    assert "… and " in body
    said, _, block = body.partition("\n\n<details><summary>For programs")
    assert said.endswith("A push to this branch makes a new plan, which needs a new approval.")
    (data,) = comment_data.read(f"<details>{block}")
    assert not data["complete"]
    assert 0 < len(data["arms"]) < len(plan.arms)
    assert re.search(r"… and \d+ more", result_comment.result(thread, ran))


def test_cut_text_links_to_the_whole() -> None:
    plan = large_plan()
    planned = record.PlanRecord(
        repository=1, pull=2, n=1, commit="a" * 40, at=synthetic.START, plan=plan
    )
    ran = ran_of(plan, "a reason " * 60, synthetic.GRACE)
    thread = Thread(
        id=ThreadId(1, 2),
        repository="r/l",
        url="https://github.com/r/l",
        now=synthetic.START,
        is_pull=True,
        site=Site("https://lab.example"),
        executions=(ran,),
    )
    page = re.escape("https://lab.example/executions/x0123456789abcdef/")
    assert re.search(rf"… and \[\d+ more\]\({page}\) \|\n", result_comment.result(thread, ran))
    assert ran.progress
    many = replace(ran, progress=replace(ran.progress, runs=ran.progress.runs * 10))
    assert re.search(
        rf"… and \[\d+ more\]\({page}\)", status_comment.status(many, site=thread.site)
    )
    tree = re.escape(f"https://github.com/r/l/tree/{'a' * 40}/experiments/warm-rate")
    assert re.search(rf"… and \[\d+ more\]\({tree}\)", plan_comment.plan(planned, thread.url))
    folded = plan_comment.folded(planned, 2, thread.url)
    assert len(folded) < LONGEST
    assert folded.count("<details>") == folded.count("</details>")
    assert folded.count("```") % 2 == 0


def test_comments_link_to_the_site_if_its_address_is_known() -> None:
    ran = ran_of(synthetic.plan(), "words", synthetic.GRACE, failed=False)
    thread = Thread(ThreadId(1, 2), "r/l", "https://github.com/r/l", synthetic.START, is_pull=True)
    assert "](" not in result_comment.result(thread, ran)
    url, id = "https://lab.example", ran.execution.id
    said = result_comment.result(replace(thread, site=Site(url)), ran)
    scored = scored_on(ran.execution.plan)
    assert scored
    runs = f"[runs]({url}/executions/{id}/#figures)"
    board = f"[leaderboard]({url}/boards/{scored.id}.html)"
    assert f"[Full result]({url}/executions/{id}/) · {runs} · {board}" in said
    assert f"({url}/runs/{id}.fast.s0.html)" in said


def test_who_can_watch_what_runs_is_linked_there_and_others_are_told_a_command() -> None:
    ran = ran_of(synthetic.plan(), "words", synthetic.GRACE, failed=False)
    running = replace(ran, life=replace(ran.life, result=None))
    live = "https://lab.example/live/x0123456789abcdef"
    said = status_comment.status(running, site=Site("https://lab.example"))
    assert f"[Watch live]({live}) · `/status` shows its progress, and `/cancel` stops it." in said
    assert f"| [`fast.s0`]({live}/fast.s0) | 2 / 16 |" in said
    tracked = replace(running, tracked="https://wandb.example/us/regatta/groups/x")
    assert f"[Watch live]({live}) · [W&B]({tracked.tracked}) · `/status`" in status_comment.status(
        tracked, site=Site("https://lab.example")
    )
    published = status_comment.status(running, site=Site("https://lab.example", live=False))
    assert "](" not in published
    assert "\n`/status` shows its progress, and `/cancel` stops it." in published


def test_the_status_of_a_done_execution_is_folded_and_points_to_the_result() -> None:
    ran = done(ran_of(synthetic.plan(), "words", synthetic.GRACE, failed=False))
    body = status_comment.status(ran)
    assert body.startswith(
        "🏁 This execution has ended after 1 min 11 s. The result gets a comment of its own.\n\n"
        "<details><summary>How it ran</summary>\n\nexecution `x0123456789abcdef`"
    )
    assert body.endswith("</details>")


def test_a_run_that_is_only_continued_is_not_scored_and_did_not_fail() -> None:
    ran = ran_of(synthetic.plan(), "words", synthetic.GRACE, failed=False)
    runs = tuple(run.model_copy(update={"evaluated": None}) for run in ran.runs[:1])
    thread = Thread(ThreadId(1, 2), "r/l", "https://github.com/r/l", synthetic.START, is_pull=True)
    said = result_comment.result(thread, Ran(ran.life, ran.progress, (*runs, *ran.runs[1:])))
    assert "| not scored, 2." in said


def test_a_reproduction_says_how_each_run_came_out_beside_the_first_time() -> None:
    body = once_more(Thread(ThreadId(1, 2), "r/l", "u", synthetic.START, True), "x", synthetic.ADA)
    assert body.startswith("## ◻️ Not comparable: 2 of 6 runs\n\nCompared with `x0123456789abcdef`")
    assert "<details open><summary>The comparison</summary>" in body
    assert "| `fast.s0` | bit for bit | 2.5000 bits per byte, same parameters |" in body
    assert "| `fast.s1` | not comparable | no score before |" in body
    assert "- jax: another word before, x now" in body


def test_an_arm_with_own_code_says_so_in_place_of_what_nobody_knows() -> None:
    plan = with_own(synthetic.plan(), "wide")
    proposed = record.PlanRecord(
        repository=1, pull=2, n=1, commit="a" * 40, at=synthetic.START, plan=plan
    )
    body = plan_comment.plan(proposed)
    assert "| arm | train.learning\\_rate | own.model | parameters |" in body
    assert "| `mine` | 0.003 | model:wide | own code | 65,536 | own code |" in body
    assert "`fast` 2,207,744, `slow` 2,207,744, `mine` own code" in body
    assert "\nmodel: {seq_len: 256, vocab_size: 256, style: wide, wide: wide}\n" in body
    assert "\nown: {model: 'model:wide'}\n" in body
    assert "**This plan cannot start here.** The experiment has its own Python code (" in body
    isolated = plan_comment.plan(proposed.model_copy(update={"isolation": "bubblewrap"}))
    assert "own Python code (`mine`) would run in isolation (bubblewrap), without net" in isolated
    assert "**To start it**" in isolated


def plan_with(phases: list[dict[str, object]]) -> str:
    """The comment of an arm without phases and four with them."""
    one = synthetic.planned_arm()
    train = TrainConfig.model_validate(one.train.model_dump() | {"phases": phases})
    phased = {f"late{n}": one.model_copy(update={"train": train}) for n in range(4)}
    plan = synthetic.plan(arms={"flat": one, **phased})
    return plan_comment.plan(
        record.PlanRecord(repository=1, pull=2, n=1, commit="a" * 40, at=synthetic.START, plan=plan)
    )


def test_phases_are_shown_as_they_are_written() -> None:
    body = plan_with([{"at": 8, "learning_rate": 1e-4, "lr_schedule": "cosine"}])
    assert "| arm | train.phases |" in body
    assert "`flat` | – |" in body
    shown = "{at: 8, learning_rate: 0.0001, lr_schedule: cosine, warmup: 0}"
    assert f"phases: [{shown}]}}\n" in body
    assert f"[{shown}]" in _shown(body)


def test_the_longest_phases_fit_too() -> None:
    names = [f"{n:a>40}" for n in range(32)]
    weights = dict.fromkeys(names, 1 / 3)
    body = plan_with([{"at": n, "tokens": names[0], "weights": weights} for n in range(1, 16)])
    assert len(body) < LONGEST
    assert "… and 4 more" in body


def test_256_seeds_fit_too() -> None:
    plan = synthetic.plan(seeds=range(256), arms={"a" * 40: synthetic.planned_arm()})
    ran = ran_of(plan, "words", synthetic.GRACE, failed=False)
    thread = Thread(
        id=ThreadId(1, 2),
        repository="r/l",
        url="https://github.com/r/l",
        now=synthetic.START,
        is_pull=True,
        executions=(ran,) * 300,
    )
    for body in (
        status_comment.status(ran),
        result_comment.result(thread, ran),
        command_answers.status_of(thread),
    ):
        assert len(body) < LONGEST


def test_a_thousand_problems_are_said_as_far_as_they_fit() -> None:
    problems = tuple(f"file, line {n}: {'words ' * 90}" for n in range(1000))
    body = seal_comments.not_sealed(problems)
    assert len(body) < LONGEST
    assert "… and 900 more" in body or "… and 950 more" in body
    assert body.endswith("```")


# ── Single sentences ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "under 1 s"),
        (-3, "under 1 s"),
        (0.99, "under 1 s"),
        (1, "1 s"),
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (125, "2 min 5 s"),
        (3600, "1 h 0 min"),
        (11_400, "3 h 10 min"),
        (259_199, "71 h 59 min"),
        (2_713_740, "31 d 9 h"),
        (float("inf"), "unknown"),
        (float("nan"), "unknown"),
    ],
)
def test_durations_for_people(seconds: float, said: str) -> None:
    assert format.duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(2.6e12, "2.60e12"), (1, "1.00e0"), (9.87e9, "9.87e9"), (1e100, "1.00e100")],
)
def test_flops_as_the_field_writes_them(value: float, said: str) -> None:
    assert format.flops(value) == said


def test_a_hint_names_each_near_miss_and_what_was_meant() -> None:
    said = command_answers.hint(Reading(near_misses=(("cancle", "cancel"),), swallowed=True))
    assert "`/cancle` is not a command. Did you mean `/cancel`?" in said
    assert "Leave an empty line before the command" in said
    assert "I did nothing." in said


def test_the_first_line_of_a_result_is_what_was_found_in_words() -> None:
    plan = synthetic.plan(
        predictions=[synthetic.prediction(), synthetic.prediction("1 ± 0.1", versus=None)]
    )
    judged = verdicts.judge(plan, {"eval/bpb": synthetic.PLAIN})
    ran = ran_of(plan, "words", synthetic.GRACE, failed=False)
    assert ran.result
    ended = ran.result.model_copy(update={"verdicts": judged, "state": "done", "why": ""})
    life = lifecycle.Facts(ran.execution, ran.life.attempts, None, None, ended)
    shown = Ran(life, ran.progress, ran.runs)
    body = result_comment.result(
        Thread(ThreadId(1, 2), "r/l", "https://github.com/r/l", synthetic.START, is_pull=True),
        shown,
    )
    found = "beats `slow` by **0.800 bits per byte** (95 % CI 0.710 to 0.890, 3 seeds)"
    assert body.startswith(
        f"## ✅ `fast` {found}\n\n**Confirmed.** Predicted: by more than 0.05, "
        "80\u00a0%\u00a0sure.\n\n❌ **Refuted**: `fast` scores **2.620 bits per byte**"
    )
    assert status_comment.title(shown) == (
        "✅ 1 confirmed · ❌ 1 refuted: fast beats slow by 0.800 bits per byte (95 % CI 0.710 to "
        "0.890, 3 seeds)"
    )


def foretelling(**changes: object) -> record.PlanRecord:
    arms = {name: synthetic.planned_arm() for name in ("a", "b", "c", "d", "e")}
    made = record.PlanRecord(
        repository=1, pull=2, n=1, commit="a" * 40, at=synthetic.START,
        plan=synthetic.plan(arms=arms),
    )  # fmt: skip
    return made.model_copy(update=changes)


def test_a_plan_says_what_the_lab_foretells_and_why_not() -> None:
    body = plan_comment.plan(
        foretelling(
            forecasts={"a": FORETOLD},
            no_forecast=dict.fromkeys("bcde", "they are too few"),
        )
    )
    assert (
        "| `a` | 2.5000 | 2.4000 to 2.6000 | 15 runs of 5 sizes; this arm takes 4 times the "
        "compute of the largest |" in body
    )
    assert (
        "The lab cannot forecast the score of `b`, `c`, `d` and 1 more: they are too few." in body
    )


def test_one_line_says_why_no_arm_has_a_forecast() -> None:
    body = plan_comment.plan(foretelling(no_forecast=dict.fromkeys("abcde", "they are too few")))
    assert "The lab cannot forecast the score: they are too few." in body
    assert body.count("forecast") == 1
    assert "forecast" not in plan_comment.plan(foretelling()), "a plan of before there were any"


def test_a_result_says_how_the_labs_forecast_came_out() -> None:
    body = everything("words")["result"]
    assert "The score is inside the 90 % interval of the lab's forecast:\n\n| arm |" in body
    assert "| `fast` | 2.5000 (2.4000 to 2.6000) | 2.5000 (seed 0) | inside, +0.00 % |" in body


def test_a_confidence_is_never_broken_across_lines() -> None:
    planned = synthetic.plan(predictions=[synthetic.prediction()], preregistration=1)
    assert "**< -0.05** — 80\u00a0%\u00a0sure" in plan_comment.plan(foretelling(plan=planned))


def test_a_plan_that_uploads_models_says_loudly_where_to() -> None:
    exports = synthetic.step("export", 9, {"upload": "our-lab/small"}, {})
    planned = synthetic.plan()
    assert "uploads" not in plan_comment.plan(foretelling(plan=planned))
    planned = planned.model_copy(update={"steps": planned.steps | {"export": exports}})
    body = plan_comment.plan(foretelling(plan=planned))
    assert "⚠️ **This plan uploads models.**" in body
    assert "replaces what is there: `our-lab/small`" in body
    assert body.index("our-lab/small") < body.index("**To start it**")


def test_a_plan_that_asks_a_language_model_says_what_that_may_cost() -> None:
    ask = {"model": "llama`3", "max_tokens": 3_000_000, "max_dollars": 5.0}
    config = {"documents": 2000, "ask": ask}
    planned = synthetic.plan()
    assert "language model" not in plan_comment.plan(foretelling(plan=planned))
    labels = synthetic.step("label", 9, config, {})
    planned = planned.model_copy(update={"steps": planned.steps | {"labels": labels}})
    body = plan_comment.plan(foretelling(plan=planned))
    assert (
        "this budget: `labels asks llamaʼ3 about 2,000 documents, with at most 3,000,000 tokens "
        "and $5.00`"
    ) in body
    assert body.index("$5.00") < body.index("**To start it**")


def test_a_plan_says_what_it_scores_on_the_way() -> None:
    assert "validation curves" not in plan_comment.plan(foretelling(plan=synthetic.plan()))
    arm = synthetic.planned_arm()
    keeps = arm.train.model_copy(update={"evaluate_every": 6})
    planned = synthetic.plan(arms={"fast": arm.model_copy(update={"train": keeps})})
    body = plan_comment.plan(foretelling(plan=planned))
    said = "For validation curves, it will also score 6 snapshots of 3 runs, which take "
    assert f"\n\n{said}" in body
    assert body.index("the lab will measure") < body.index(said)


def test_the_picture_of_a_result_says_whether_it_has_validation_curves() -> None:
    ran = ran_of(synthetic.plan(), "words", synthetic.ADA)
    said = {Key.parse(f"picture.{ran.execution.id}"): Said("done", 0, None, "b" * 40)}
    thread = Thread(
        id=ThreadId(1, 2), repository="regatta-lab/lab", url="https://x", now=synthetic.START,
        is_pull=True, said=said,
    )  # fmt: skip
    assert "of every run over tokens]" in result_comment.result(thread, ran)
    scored = [run.model_copy(update={"validation": ((1, 2.0, None),)}) for run in ran.runs]
    body = result_comment.result(thread, replace(ran, runs=tuple(scored)))
    assert "over tokens, and bits per byte on the validation text]" in body
