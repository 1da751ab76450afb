"""Issue forms: the body is GitHub's, and what is missing is said."""

from __future__ import annotations

import pytest

from bot.fake_github.world import forms
from bot.fake_github.world.errors import Refused
from tests.sandbox.fixtures import FORM


def test_the_body_is_what_github_writes() -> None:
    answers = {
        "hypothesis": ["A warmer rate pays off.\r\nBy far."],
        "predictions": ["- metric: eval/bpb\r\n  expect: < 2\r\n"],
        "kind": ["replication"],
        "budget": [""],
        "promises": ["I have looked for an earlier one"],
    }
    assert forms.body(forms.parse(FORM.decode()), answers) == (
        "### Hypothesis\n\nA warmer rate pays off.\nBy far.\n\n"
        "### Predictions\n\n```yaml\n- metric: eval/bpb\n  expect: < 2\n```\n\n"
        "### Kind\n\nreplication\n\n"
        "### Budget\n\n_No response_\n\n"
        "### Promises\n\n- [x] I have looked for an earlier one\n- [ ] I would run it again"
    )


def test_an_empty_form_is_all_no_response() -> None:
    body = forms.body(forms.parse(FORM.decode()), {})
    assert body.count("_No response_") == 4
    assert body.endswith("- [ ] I have looked for an earlier one\n- [ ] I would run it again")


def test_a_fence_in_an_answer_does_not_end_the_forms_own() -> None:
    answers = {"predictions": ["```\ncode\n```"]}
    body = forms.body(forms.parse(FORM.decode()), answers)
    assert "````yaml\n```\ncode\n```\n````" in body


def test_missing_required_answers_are_named() -> None:
    form = forms.parse(FORM.decode())
    assert set(forms.problems(form, {"hypothesis": [" "]})) == {"hypothesis", "promises"}
    given = {"hypothesis": ["x"], "promises": ["I have looked for an earlier one"]}
    assert forms.problems(form, given) == {}


def test_a_forms_own_settings_are_read() -> None:
    form = forms.parse(FORM.decode())
    assert (form.name, form.title, form.labels) == (
        "Experiment", "[experiment] ", ("experiment: wishlist",),
    )  # fmt: skip
    assert forms.parse("{name: x, labels: 'a, b', body: []}").labels == ("a", "b")


@pytest.mark.parametrize(
    "text", ["body: [", "name: x", "- 1", "body: [{type: slider}]", "body: [{attributes: {}}]"]
)
def test_a_form_that_cannot_be_shown_says_so(text: str) -> None:
    with pytest.raises(Refused, match="cannot be shown"):
        forms.parse(text)
