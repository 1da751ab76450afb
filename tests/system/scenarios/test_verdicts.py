"""From a sealed prediction to calibration, and what people may try on the way: whatever they edit
or run again after the seal, the verdict does not change in silence."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.site.pages.build import build
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, READING, TEXT, Lab, a_lab, form_body
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_story import PIXEL, push
from tests.unit.site.test_pages import Page

EARLIER = """\
title: How far apart are seeds here?
data: {source: text.txt, tokenizer: byte}
model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, seq_len: 32}
train: {train_batch_size: 2, num_train_steps: 16, learning_rate: 0.001}
eval: {tokens: 64}
resources: {kind: cpu, count: 1}
seeds: [0, 1, 2]
arms:
  one: {}
  two: {train: {learning_rate: 0.002}}
  three: {train: {learning_rate: 0.004}}
"""
SECOND = EXPERIMENT.replace("preregistration: 1", "preregistration: 2")
PREDICTIONS = """\
- {metric: eval/bpb, arm: fast, versus: slow, expect: "< -0.05", confidence: 80 %}
- {metric: eval/bpb, arm: fast, versus: slow, expect: "-0.8 ± 0.02", confidence: 0.6}
"""
PLACES = {"one": 3.0, "two": 2.9, "three": 2.8, "slow": 3.2, "fast": 2.4}


def bpb(arm: str, seed: int) -> float:
    """`fast` is better with the seeds that were planned, and worse with others."""
    wobble = 0.02 * ((seed + ord(arm[0])) % 3)
    return (PLACES[arm] if seed < 3 else 6 - PLACES[arm]) + wobble


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(bpb=bpb)) as lab:
        yield lab


def propose(lab: Lab, name: str, declaration: str) -> int:
    """Ada opens a pull request from a branch of this name, with an experiment of this name."""
    folder = f"experiments/{name}"
    files = {f"{folder}/experiment.yaml": declaration.encode(), f"{folder}/text.txt": TEXT.encode()}
    lab.sandbox.commit("ada", name, files, "Declare an experiment")
    pull = lab.sandbox.open_pull("ada", name, "", name).number
    lab.settle()
    lab.clock.advance(READING)
    return pull


def calibration(lab: Lab) -> tuple[Page, list[dict[str, object]]]:
    """The site's page of forecasts, and its twin."""
    site = lab.root / "site"
    build(lab.store, site)
    return Page(site / "forecasts.html"), json.loads((site / "api" / "forecasts.json").read_bytes())


def execution_page(lab: Lab, id: str) -> Page:
    return Page(lab.root / "site" / "executions" / id / "index.html")


def executions(lab: Lab) -> list[str]:
    """Ids in the order of their approvals."""
    found = [fact for path, fact in lab.records("executions").items() if "/execution" in path]
    return [fact["id"] for fact in sorted(found, key=lambda fact: fact["at"])]


def test_a_sealed_prediction_a_plan_with_its_power_a_verdict_with_deviations_and_calibration(
    lab: Lab,
) -> None:
    # Somebody measures first; of the spread between seeds nothing is known then.
    earlier = propose(lab, "earlier", EARLIER)
    assert "Statistical power unknown: the lab has run fewer than 3" in lab.last(earlier)
    lab.say("grace", earlier, "/run")

    # The seal, and a plan that says what its design can tell.
    issue = lab.preregister(form_body(predictions=PREDICTIONS))
    assert issue == 2
    pull = propose(lab, "warm", SECOND)
    (record,) = lab.records(f"plans/700001/{pull}").values()
    assert record["spread"] == pytest.approx({"deviation": 0.02, "arms": 3, "freedom": 6})
    plan = lab.last(pull)
    assert "Power: with 3 seeds, two arms have to differ by 0.092" in plan
    assert "comparable runs: 0.020" in plan
    assert "Prediction 1: too small an effect (0.050)" in plan
    assert "⚠️ Prediction 2: too narrow for this design. If the true difference is" in plan

    # The issue is edited, and an approval leaves a seed out.
    lab.sandbox.edit_issue(
        "ada", issue, body=form_body(predictions=PREDICTIONS.replace("< -0.05", "< 0.05"))
    )
    lab.settle()
    assert '+- {metric: eval/bpb, arm: fast, versus: slow, expect: "< 0.05"' in lab.last(issue)
    lab.say("grace", pull, f"/run {record['code']} seeds=0,2")

    # The verdict stands by the seal, and says what is not as it was sealed, with the difference.
    execution = executions(lab)[-1]
    for said in (lab.last(issue), lab.last(pull)):
        assert said.startswith("## ✅ `fast` beats `slow` by **")
        assert "by more than 0.05" in said
        assert (
            "**Difference from what was sealed:** the issue was edited once after it was sealed"
            in said
        )
        assert '-- {metric: eval/bpb, arm: fast, versus: slow, expect: "< -0.05"' in said
        assert '+- {metric: eval/bpb, arm: fast, versus: slow, expect: "< 0.05"' in said
        assert "**Difference from what was sealed:** It leaves out 1 of 3 seeds: 1." in said
        assert "Each score is the mean over the seeds 0, 2" in said

    # And the calibration is of what was sealed.
    page, twin = calibration(lab)
    assert [(one["outcome"], one["counts"]) for one in twin] == [
        ("inconclusive", True),
        ("confirmed", True),
    ]
    assert "ada 0.040 1 1" in page.text, "(0.8 − 1)²; the inconclusive one scores nothing"
    text = execution_page(lab, execution).text
    assert "Differences from the seal The issue was edited once after it was sealed" in text
    assert 'expect: "< 0.05"' in text


def test_edits_other_seeds_and_other_designs_change_no_verdict_in_silence(lab: Lab) -> None:
    issue = lab.preregister(form_body(predictions=PREDICTIONS))
    pull = propose(lab, "warm", EXPERIMENT)
    lab.say("grace", pull, "/run")
    (counted,) = executions(lab)
    assert lab.last(issue).startswith("## ✅ `fast` beats `slow` by **")
    before, _ = calibration(lab)

    # The predictions are turned around in the issue, and the same plan is run once more.
    turned = PREDICTIONS.replace("< -0.05", "> -0.05")
    lab.sandbox.edit_issue("ada", issue, body=form_body(predictions=turned))
    lab.settle()
    lab.say("grace", pull, "/reproduce")
    again = lab.last(issue)
    assert again.startswith("## Re-run: ✅ `fast` beats `slow`")
    assert (
        f"**This does not change the verdict of #{issue}.** Reason: it is a re-run. The execution "
        f"that counts is `{counted}`" in again
    )
    assert 'expect: "> -0.05"' in again

    # Other seeds give the answer that somebody hoped for.
    push(lab, EXPERIMENT.replace("[0, 1, 2]", "[3, 4, 5]"))
    lab.say("grace", pull, "/run")
    # Another design does, in another pull request.
    other = EXPERIMENT.replace("learning_rate: 0.003,", "learning_rate: 0.03,")
    third = propose(lab, "hotter", other.replace("[0, 1, 2]", "[6, 7, 8]"))
    assert f"fixed another design (execution `{counted}`)" in lab.last(third)
    lab.say("grace", third, "/run")
    _, _, seeds, hotter = executions(lab)
    for said, id, line in (
        (lab.comments(issue)[-2], seeds, "+ seeds: 3, 4, 5"),
        (lab.comments(pull)[-1], seeds, "+ seeds: 3, 4, 5"),
        (lab.comments(issue)[-1], hotter, "+ arms.fast.train.learning_rate: 0.03"),
        (lab.comments(third)[-1], hotter, "+ arms.fast.train.learning_rate: 0.03"),
    ):
        heading, _, rest = said.partition("\n\n")
        assert heading.startswith(
            "## Exploratory: ❌ `slow` beats `fast` by **0.800 bits per byte**"
        )
        assert said.count("**Refuted") == 2
        assert rest.startswith(
            f"**This does not change the verdict of #{issue}.** Reason: exploratory: its"
        )
        assert f"the design is not that of `{counted}`" in said
        assert line in said
        assert f"| `{counted}` | #{pull}, plan 1 | done |" in said
        assert "**counts**" in next(x for x in said.splitlines() if f"| `{counted}`" in x)
        row = next(x for x in said.splitlines() if x.startswith(f"| `{id}`"))
        assert "exploratory: its design is not the sealed one" in row

    # Every verdict is shown, and the score is that of the first.
    after, twin = calibration(lab)
    assert [one["counts"] for one in twin] == [False] * 6 + [True] * 2
    assert after.text.count("exploratory: its design is not the sealed one") == 4
    question = Page(lab.root / "site" / "experiments" / f"700001-{issue}.html").text
    assert question.count("exploratory: its design is not the sealed one") == 2
    assert question.count("it is a re-run") == 1
    front = Page(lab.root / "site" / "index.html").text
    assert "fast beats slow" in front
    assert "slow beats fast" not in front, "only what counts is a finding"
    score = "ada 0.040 1 1"
    assert score in before.text
    assert score in after.text
    page = execution_page(lab, hotter).text
    assert f"The execution that counts is {counted}" in page
    assert page.count("exploratory: its design is not the sealed one") == 3
    assert "+ seeds: 6, 7, 8" in page


def test_a_verdict_lists_what_was_cancelled_and_what_failed_before_it(tmp_path: Path) -> None:
    with a_lab(tmp_path, StubRay(pace=0, bpb=bpb)) as lab:
        issue = lab.preregister(form_body(predictions=PREDICTIONS))
        pull = propose(lab, "warm", EXPERIMENT)
        lab.sandbox.comment("grace", pull, "/run")
        for _ in range(10):
            assert lab.bot
            lab.bot.work()
            lab.sleep(2)
        (stopped,) = executions(lab)
        lab.sandbox.comment("grace", pull, "/cancel")
        lab.settle()
        lab.trainer.pace = None
        lab.trainer.diverge = {"fast.s1": 3}
        lab.say("grace", pull, "/retry")
        assert "1 of 6 runs have no score: `fast.s1`" in lab.last(issue)
        lab.trainer.diverge = {}
        lab.say("grace", pull, "/reproduce")
        first, second, third = executions(lab)
        rows = [line for line in lab.last(issue).splitlines() if line.startswith("| `x")]
        assert first == stopped
        assert [row.split(" | ")[2] for row in rows] == ["cancelled", "done", "done"]
        assert [row.split(" | ")[4].rstrip(" |") for row in rows] == [
            "it was cancelled",
            "it is incomplete",
            "**counts**",
        ]
        assert f"| `{third}`" in rows[2]
        assert second in rows[1]


def test_a_prediction_of_what_has_been_measured_already_scores_nothing(lab: Lab) -> None:
    # Ada looks first, without a word of what she expects.
    pull = propose(lab, "look", EXPERIMENT.replace("preregistration: 1\n", ""))
    lab.say("grace", pull, "/run")
    (looked,) = executions(lab)
    # Then she is quite sure, and has the very same runs made again.
    issue = lab.preregister(form_body(predictions=PREDICTIONS))
    again = propose(
        lab, "warm", EXPERIMENT.replace("preregistration: 1", f"preregistration: {issue}")
    )
    assert f"Execution `{looked}` began the same runs before" in lab.last(again)
    lab.say("grace", again, "/run")
    for said in (lab.last(issue), lab.last(again)):
        assert said.startswith("## Began before the seal: ✅ `fast` beats")
        assert f"6 of 6 runs began before the seal, in `{looked}`" in said
        assert f"**This does not decide #{issue}.** Reason: its runs began before" in said
    page, twin = calibration(lab)
    assert [one["counts"] for one in twin] == [False, False]
    assert "ada 0.040" not in page.text
    assert "its runs began before the seal" in execution_page(lab, executions(lab)[-1]).text
