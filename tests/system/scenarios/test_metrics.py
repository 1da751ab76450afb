"""The story of predictions about other metrics than bits per byte on the whole text: refused with
the near miss, sealed, planned with their power, measured, judged, and shown on the site."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.site.pages import build
from runner.publish import charts
from tests.scenarios.lab import Lab, a_lab, form_body
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_steps import BUILT_IN, proposed
from tests.system.scenarios.test_story import PIXEL, executions

MIXED = BUILT_IN.replace(
    """\
  train:
    do: train
    inputs: {tokens: tokens}
""",
    """\
  more:
    do: tokenize
    config: {source: lab-2026-11}
  both:
    do: mix
    inputs: {docs: tokens, news: more}
    config: {weights: {docs: 1, news: 3}}
  train:
    do: train
    inputs: {tokens: both}
""",
).replace("models: train, tokens: tokens", "models: train, tokens: both")
PREDICTIONS = """\
- metric: eval/docs/bpb
  arm: fast
  versus: slow
  expect: "< -0.1"
  confidence: 80 %
- metric: weights/output_norm
  arm: fast
  versus: slow
  expect: "> 1"
  confidence: 60 %
- metric: eval/news/bpb
  order: [slow, fast]
  confidence: 70 %
"""


def scores(arm: str, seed: int, metric: str) -> float:
    fast = arm == "fast"
    by = {
        "weights/output_norm": 12.5 if fast else 9.0,
        "eval/docs/bpb": 2.2 if fast else 2.9,
        "eval/news/bpb": 2.7 if fast else 3.4,
    }
    return by[metric] + 0.01 * (seed + fast * seed)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(by_metric=scores)) as lab:
        yield lab


def test_predictions_about_any_metric_are_sealed_judged_and_shown(lab: Lab, tmp_path: Path) -> None:
    typo = PREDICTIONS.replace("weights/output_norm", "weights/output_nrom")
    issue = lab.preregister(form_body(predictions=typo))
    assert "the lab measures no `weights/output_nrom`; did you mean `weights/output_norm`?" in (
        lab.last(issue)
    )
    lab.sandbox.edit_issue("ada", issue, body=form_body(predictions=PREDICTIONS))
    lab.settle()
    assert "`eval/docs/bpb` of `fast` minus `slow` is **< -0.1**" in lab.last(issue)

    pull = proposed(lab, {"experiment.yaml": MIXED})
    plan = lab.last(pull)
    assert (
        "For each trained model, the lab will measure: `eval/bpb`, `eval/docs/bpb`, "
        "`eval/news/bpb`, `weights/output_norm`."
    ) in plan
    assert plan.count("Statistical power unknown") == 1, "it is said once of all metrics"

    lab.say("grace", pull, "/run")
    result = lab.last(pull)
    assert (result.count("**Confirmed"), result.count("❌ **Refuted**")) == (2, 1)
    assert "`fast` beats `slow` by **0.695 bits per byte** in `eval/docs/bpb`" in result
    assert "`fast` minus `slow` is **3.505** in `weights/output_norm`" in result
    assert "the least step, fast minus slow: " in result
    assert "All scores, with intervals by seeds and by items" in result
    norm = "| `weights/output_norm` | `fast` | 12.510 ± 0.014 | – | 2 of 2 | – |"
    assert f"{norm} 12.383 to 12.637 | – |" in result
    assert "| `eval/docs/bpb` | `fast` | 2.210 ± 0.014 | bits per byte | 2 of 2 | 20 |" in result
    assert "2.190 to 2.230 |" in result
    assert (
        "- `eval/docs/bpb`: bits per byte on `docs` in the validation text; lower is better."
        in (result)
    )
    assert "0.695 bits per byte" in lab.last(issue), "the issue gets its verdicts"

    (execution,) = executions(lab)
    build.build(lab.store, tmp_path / "site")
    site = tmp_path / "site"
    for page in (
        site / "executions" / execution / "index.html",
        *site.glob("experiments/*-*.html"),
    ):
        words = page.read_text()
        assert "12.510 ± 0.014" in words, page
        assert "bits per byte on <code>docs</code> in the validation text" in words, page
    run = (site / "runs" / f"{execution}.fast.s0.html").read_text()
    assert "<code>eval/news/bpb</code>" in run
    assert "2.680 to 2.720" in run


def test_a_metric_that_no_step_of_the_plan_measures_is_refused_with_the_near_miss(lab: Lab) -> None:
    lab.preregister(form_body(predictions=PREDICTIONS.replace("eval/docs/bpb", "eval/doc/bpb")))
    pull = proposed(lab, {"experiment.yaml": MIXED})
    assert (
        "predicts `eval/doc/bpb` of the arm `fast`, and no step measures `eval/doc/bpb`; "
        "did you mean `eval/docs/bpb`?"
    ) in lab.last(pull)
