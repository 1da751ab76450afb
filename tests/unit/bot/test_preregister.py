"""Reading an issue of the experiment form."""

import hashlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.messages import seal_comments
from bot.model.thread import Issue, Thread, ThreadId
from bot.rules.sealing import NotReadable, read
from runner.lib.canonical_json import to_json
from runner.schema.record import Edit, Person, Prediction, Preregistration
from tests.examples import examples
from tests.scenarios.lab import HYPOTHESIS, PREDICTIONS, form_body

FORM = {"hypothesis": "Hypothesis", "predictions": "Predictions", "notes": "Notes"}
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
THREAD = Thread(ThreadId(7, 1), "lab/lab", "https://github.com/lab/lab", NOW, is_pull=False)


def issue(body: str, title: str = "Warmer is better") -> Issue:
    return Issue(title, body, Person(login="ada", id=11), open=True)


def problems(body: str, title: str = "Warmer is better") -> tuple[str, ...]:
    with pytest.raises(NotReadable) as caught:
        read(issue(body, title), FORM, THREAD)
    return caught.value.problems


def sealed(body: str) -> Preregistration:
    found = read(issue(body), FORM, THREAD)
    assert found is not None
    return found


def one(expect: str, confidence: str = "0.8") -> str:
    return f"- {{metric: eval/bpb, arm: a, expect: {expect}, confidence: {confidence}}}"


def test_a_form_is_read_to_the_last_field() -> None:
    found = sealed(form_body())
    assert found.title == "Warmer is better"
    assert found.hypothesis == HYPOTHESIS
    assert found.author.login == "ada"
    assert found.at == NOW
    assert found.predictions == (
        Prediction(metric="eval/bpb", arm="fast", versus="slow", expect="< -0.05", confidence=0.8),
        Prediction(metric="eval/bpb", arm="fast", versus=None, expect="1 ± 0.2", confidence=0.6),
    )


@pytest.mark.parametrize(
    "body",
    [
        form_body().replace("\n", "\r\n"),
        form_body().replace("```yaml\n", "```\n"),
        form_body().replace("```", "~~~~"),
        form_body().replace("```yaml\n", "").replace("\n```", ""),
        "### Notes\n\nfirst\n\n" + form_body().partition("### Notes")[0],
        "Some words before.\n\n" + form_body(),
        form_body().replace("### Hypothesis", "  ### Hypothesis  "),
    ],
)
def test_the_ways_in_which_a_form_arrives_mean_the_same(body: str) -> None:
    assert sealed(body).predictions == sealed(form_body()).predictions
    assert sealed(body).hypothesis == HYPOTHESIS


@pytest.mark.parametrize(
    "body",
    ["", "Words.", "### Something else\n\nwords", "Hypothesis\n\nwords", "## Hypothesis\n\nwords"],
)
def test_an_issue_without_the_forms_headings_is_none_of_ours(body: str) -> None:
    assert read(issue(body), FORM, THREAD) is None


def test_without_a_form_in_the_repository_no_issue_is_ours() -> None:
    assert read(issue(form_body()), {}, THREAD) is None


def test_the_headings_are_those_of_the_labs_own_form() -> None:
    form = {"hypothesis": "Vermutung", "predictions": "Vorhersagen", "notes": "Notes"}
    body = form_body().replace("### Hypothesis", "### Vermutung")
    body = body.replace("### Predictions", "### Vorhersagen")
    found = read(issue(body), form, THREAD)
    assert found is not None
    assert found.hypothesis == HYPOTHESIS


@pytest.mark.parametrize(
    "typed",
    [
        "### Notes and more",
        "### Notes",  # github/issue-parser#11
        "```\n### Predictions\n\nx\n```",  # Subway-Builder-Modded/registry#11271
        "~~~~\n```\n### Predictions\n~~~~",  # OpenHands/OpenHands#16553
        "root@host:~# cat ### Predictions",  # stefanbuck/github-issue-parser#72
        "#### Predictions\n\nNested.",  # lidge-jun/opencodex#541
    ],
)
def test_headings_typed_into_an_answer_belong_to_the_answer(typed: str) -> None:
    found = sealed(form_body(f"Because.\n\n{typed}\n\nMore."))
    assert found.hypothesis == f"Because.\n\n{typed}\n\nMore."
    assert found.predictions == sealed(form_body()).predictions


@pytest.mark.parametrize("fence", ["```yaml", "```", "~~~"])
def test_predictions_pasted_with_their_own_fence_are_read(fence: str) -> None:
    """Subway-Builder-Modded/registry#11271."""
    own = form_body().replace("```yaml\n", f"```yaml\n{fence}\n", 1)
    head, mark, notes = own.rpartition("```")
    body = f"{head}{fence[:3]}\n{mark}{notes}"
    assert sealed(body).predictions == sealed(form_body()).predictions


def test_code_that_its_author_did_not_close_hides_no_field() -> None:
    found = sealed(form_body("Because:\n\n```\nx = 1"))
    assert found.predictions == sealed(form_body()).predictions


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        ('"< -0.05"', "< -0.05"),
        ("< -0.05", "< -0.05"),
        ('"<-0.05"', "< -0.05"),
        ('">= 1.50"', ">= 1.5"),
        ('"1.9 ± 0.1"', "1.9 ± 0.1"),
        ("1.9 ± 0.1", "1.9 ± 0.1"),
        ('"< −0.05"', "< -0.05"),
        ('"> 1e-3"', "> 0.001"),
    ],
)
def test_expect_is_sealed_in_its_canonical_form(typed: str, canonical: str) -> None:
    assert sealed(form_body(predictions=one(typed))).predictions[0].expect == canonical


@pytest.mark.parametrize(
    ("typed", "confidence"),
    [("80 %", 0.8), ("80%", 0.8), ('"80 %"', 0.8), ("0.8", 0.8), ("62.5 %", 0.625), (".5 %", 0.005),
     ("8e-1", 0.8)],
)  # fmt: skip
def test_confidence_is_a_share_or_a_percentage(typed: str, confidence: float) -> None:
    found = sealed(form_body(predictions=one('"< 1"', typed)))
    assert found.predictions[0].confidence == pytest.approx(confidence)


@pytest.mark.parametrize(
    "typed",
    ["0", "1", "80", "100 %", "0 %", "-5 %", "1.2.3 %", ". %", "sure", "[0.8]", "{a: 1}", "~",
     "1e999", "true", "8_0 %", "９０ %"],
)  # fmt: skip
def test_other_confidences_are_refused_with_their_line(typed: str) -> None:
    (problem,) = problems(form_body(predictions=one('"< 1"', typed)))
    assert problem.startswith("`Predictions`, line 1, `confidence`: ")
    assert problem.endswith("; write `confidence: 80 %`.")


@pytest.mark.parametrize("arm", ["", "Fast", "a b", "a/b", "@grace", "`a`", "x" * 41, "a\\nb"])
def test_a_name_that_no_arm_can_have_is_refused_before_it_is_sealed(arm: str) -> None:
    body = form_body(
        predictions=f'- metric: eval/bpb\n  arm: "{arm}"\n  expect: "< 1"\n  confidence: 0.8'
    )
    (problem,) = problems(body)
    assert problem.startswith("`Predictions`, line 2, `arm`: ")
    assert "can be no arm's name" in problem


@pytest.mark.parametrize("arm", ["fast", "gentle,low-cosine", "tune,learning_rate=1e-05,tied=True"])
def test_an_arm_of_a_sweep_can_be_predicted_by_the_name_that_the_plan_gives_it(arm: str) -> None:
    body = form_body(
        predictions=f'- metric: eval/bpb\n  arm: "{arm}"\n  expect: "< 1"\n  confidence: 0.8'
    )
    assert sealed(body).predictions[0].arm == arm


@pytest.mark.parametrize(
    "expect",
    ["> 1.5", ">= 1.5", ">1.5", "> -1.5"],
)
def test_a_bare_greater_than_is_answered_with_the_quotes_it_needs(expect: str) -> None:
    (said,) = problems(form_body(predictions=PREDICTIONS.replace('"< -0.05"', expect)))
    assert (
        f'line 4, `expect`: YAML reads a bare `>` as something else; write `expect: "{expect}"'
        in said
    )


def other(*lines: str) -> str:
    return "- metric: eval/bpb\n  confidence: 70 %\n" + "".join(f"  {line}\n" for line in lines)


def test_the_other_forms_are_sealed_as_they_are_written() -> None:
    text = (
        other("order: [wide, deep, plain]")
        + other("order: [a, b]", 'expect: ">0.010"')
        + other("exponent: [s1, s2, s3, s4]", "axis: model_flops", "expect: 0.25 ± 0.05")
        + other("arm: s4", "smaller: [s1, s2, s3]", "axis: tokens", "expect: 0 +- 0.01")
    )
    found = sealed(form_body(predictions=text)).predictions
    assert [one.expect for one in found] == ["> 0", "> 0.01", "0.25 ± 0.05", "0 ± 0.01"]
    assert found[0].order == ("wide", "deep", "plain")
    assert (found[2].exponent, found[2].axis) == (("s1", "s2", "s3", "s4"), "model_flops")
    assert (found[3].arm, found[3].smaller) == ("s4", ("s1", "s2", "s3"))


def test_the_examples_that_are_shown_are_sealed_as_they_stand() -> None:
    _, _, shown = seal_comments.not_sealed(("line 1",)).partition("```yaml\n")
    found = sealed(form_body(predictions=shown.removesuffix("\n```"))).predictions
    assert [bool(one.order) + 2 * bool(one.exponent) + 4 * bool(one.smaller) for one in found] == [
        0, 1, 2, 4,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["orders: [a, b]", "expect: < 1"], "line 3, `orders`: unknown key; did you mean "
         "`order`?"),
        (["order: a"], "line 3, `order`: must be a list, not `a`; write"),
        (["order: [a, 1]"], "line 3, `order.1`: must be text, not `1`; write"),
        (["order: [a, B]"], "line 3, `order.1`: 'B' can be no arm's name"),
        (["order: [a]"], "line 3, `order`: names 1 of the 2 arms"),
        (["order: [a, b]", "arm: a"], "line 4, `arm`: does not go with `order`"),
        (["order: [a, b]", 'expect: "< 0"'], "line 4, `expect`: of an `order` it says by how much"),
        (["exponent: [a, b, c, d]", "axis: model_flop", "expect: < 1"], "line 4, `axis`: must be "
         "`model_flops`, `hardware_flops`, `tokens` or `parameters`, not `model_flop`"),
        (["exponent: [a, b, c, d]", "expect: < 1"], "line 1, `axis`: is missing; say what C is"),
        (["exponent: [a, b, c, d]", "axis: tokens"], "line 1, `expect`: is missing; write"),
        (["expect: < 1"], "line 1, `arm`: is missing; name an `arm`, or the arms of an `order`"),
        ([f"order: [{', '.join(f'a{n}' for n in range(21))}]"], "must have at most 20 entries"),
    ],
)  # fmt: skip
def test_a_bad_form_is_refused_with_its_line_and_key(lines: list[str], said: str) -> None:
    (problem,) = problems(form_body(predictions=other(*lines)))
    assert said in problem


def test_everything_that_is_missing_is_said_at_once() -> None:
    said = problems(form_body("", ""), title=" ")
    assert [problem.split()[0] for problem in said] == ["The", "`Hypothesis`", "`Predictions`"]


def test_each_bad_prediction_has_its_own_line() -> None:
    text = PREDICTIONS.replace("metric", "metrics").replace("confidence: 0.6", "confidence: 6")
    said = problems(form_body(predictions=text))
    lines = sorted(problem.split(", `")[0] for problem in said)
    assert lines == [f"`Predictions`, line {n}" for n in (1, 6, 9)]


def test_a_prediction_repeated_with_another_confidence_is_refused() -> None:
    (found,) = problems(
        form_body(predictions=f"{one('< 2')}\n{one('< 3')}\n{one('< 2.0', '0.99')}\n")
    )
    assert found == "`Predictions`, line 3: an entry above says that; say it once."


def test_the_seal_covers_hypothesis_predictions_author_and_time() -> None:
    seal = sealed(form_body())
    for changed in (
        {"hypothesis": "Another."},
        {"predictions": seal.predictions[:1]},
        {"author": Person(login="sam", id=12)},
        {"at": NOW.replace(hour=13)},
        {"title": "Another."},
    ):
        assert seal.model_copy(update=changed).seal != seal.seal
    assert sealed(form_body()).seal == seal.seal


MARKS = st.text(st.sampled_from("ab1 -:{}[],\"'\n>|&*!%#`~\\\t.?@<±e"), max_size=120)


@settings(max_examples=examples(60), deadline=None)
@given(st.one_of(MARKS, st.text(max_size=80), st.text().map(PREDICTIONS.__add__)))
@example('- {expect: "\\ud800"}')
@example('- metric: "\\UFFFFFFFF"')
@example("- expect: " + "9" * 5000)
@example("- !!int x")
@example("- &a [*a]")
@example("- {confidence: 1.2.3 %}")
@example("- {arm: {}, expect: [], versus: 3}")
@example("- ? [a]\n  : b")
@example("[" * 5000)
def test_whatever_is_typed_is_sealed_or_refused_in_words(predictions: str) -> None:
    try:
        found = read(issue(form_body(predictions=predictions)), FORM, THREAD)
        said = [found.canonical().decode() if found else "none of ours"]
    except NotReadable as error:
        said = list(error.problems)
    assert said
    assert not any("pydantic" in words or words != words.encode().decode() for words in said)


def test_the_text_is_sealed_with_what_was_read_in_it() -> None:
    found = sealed(form_body())
    assert found.text == f"Warmer is better\n{form_body()}"
    assert found.text_sha256 == hashlib.sha256(found.text.encode()).hexdigest()


def test_records_from_before_texts_were_kept_load_and_keep_their_digests() -> None:
    found = sealed(form_body())
    old = json.loads(found.canonical())
    del old["text"]
    written = to_json(old)
    loaded = Preregistration.model_validate_json(written)
    assert loaded.text is None
    assert loaded.canonical() == written
    assert loaded.seal == hashlib.sha256(written).hexdigest() != found.seal
    edit = to_json({"at": "2026-03-01T12:00:00Z", "text_sha256": "0" * 64})
    assert Edit.model_validate_json(edit).canonical() == edit
