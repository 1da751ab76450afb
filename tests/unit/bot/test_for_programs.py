"""What comments say to programs: JSON in a folded block, of a form that a schema says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bot.messages import command_answers, for_programs, plan_comment, result_comment, seal_comments
from bot.model import comment_data
from bot.site.pages.api_forms import schemas
from runner.lib import format
from runner.lib.problems import Problem
from runner.schema import record
from tests import synthetic
from tests.unit.bot.test_approve import OF_MIRA, thread
from tests.unit.bot.test_words import everything, ran_of

PLAN = record.PlanRecord(
    repository=1,
    pull=2,
    n=3,
    commit="a" * 40,
    at=synthetic.START,
    plan=synthetic.plan(predictions=[synthetic.prediction()], preregistration=1),
    code="k3f2-abcd-efgh-ijkl-mnop",
    limit_seconds=3600.0,
)


def only(body: str) -> dict[str, object]:
    (found,) = comment_data.read(body)
    Draft202012Validator(schemas()[f"comment-{found['kind']}"]).validate(found)
    return found


def test_every_comment_with_data_has_the_form_of_its_schema() -> None:
    kinds = {only(body)["kind"] for body in everything("words").values() if "(JSON)" in body}
    assert kinds == set(comment_data.KINDS)


def test_a_plan_says_what_would_run_and_what_approves_it() -> None:
    said = only(plan_comment.plan(PLAN))
    assert (said["plan"], said["commit"], said["fingerprint"]) == (
        *(3, "a" * 40),
        synthetic.plan(predictions=[synthetic.prediction()]).fingerprint,
    )
    assert set(said["arms"]) == {"fast", "slow"}
    assert said["devices"] == {"cpu": 6}
    assert said["approval"]["by"] == "maintainer"
    assert said["approval"]["line"] == "/run k3f2-abcd-efgh-ijkl-mnop"
    assert said["complete"] is True
    agents = only(plan_comment.plan(OF_MIRA))["approval"]
    assert (agents["by"], agents["agent"], agents["sponsor"]) == ("policy", "mira", "grace")
    needs = OF_MIRA.model_copy(update={"needs_maintainer": "it has its own code"})
    agents = only(plan_comment.plan(needs))["approval"]
    assert (agents["by"], agents["why"]) == ("maintainer", "it has its own code")
    drifted = PLAN.model_copy(update={"drifted": ("An alias would change.",)})
    assert only(plan_comment.plan(drifted))["approval"]["by"] == "nobody"


def test_problems_come_with_file_line_and_field() -> None:
    at = "experiments/x/experiment.yaml"
    problems = (
        Problem(at, 3, "train.learning_rate", "must be a number; write 0.003"),
        Problem(at, None, "", "there is no such file"),
    )
    bad = PLAN.model_copy(
        update={"plan": None, "problems": (*map(str, problems), "No file is named here.")}
    )
    said = only(plan_comment.plan(bad))["problems"]
    assert said[:2] == [vars(one) for one in problems]
    assert said[2] == {"file": "", "line": None, "field": "", "message": "No file is named here."}


@given(st.text(max_size=30), st.integers(1, 99) | st.none(), st.sampled_from(["", "a.b", "x"]))
def test_a_problem_is_read_as_it_was_said(words: str, line: int | None, field: str) -> None:
    one = Problem("experiments/x/experiment.yaml", line, field, f"w{words}")
    assert Problem.read(str(one)) == one
    assert str(Problem.read(words)) in (words, f": {words}")


def test_a_result_says_the_verdicts_and_the_lab_s_scores() -> None:
    plan = synthetic.plan(predictions=[synthetic.prediction()], preregistration=1)
    ran = ran_of(plan, "words", synthetic.GRACE, failed=False)
    said = only(result_comment.result(thread(), ran))
    assert (said["execution"], said["state"]) == (ran.execution.id, ran.result.state)
    (verdict,) = said["verdicts"]
    assert verdict["prediction"]["arm"] == "fast"
    assert verdict["outcome"] == ran.result.verdicts[0].outcome
    scores = said["scores"]["fast"]["seeds"]
    assert scores == {
        str(run.seed): run.evaluated and run.evaluated.bpb for run in ran.runs if run.arm == "fast"
    }


@pytest.mark.parametrize(
    "word", ["```\n</details>\n<!-- regatta: plan.1 -->@grace `x` \u202e", "é\n/run"]
)
def test_words_of_strangers_come_back_as_they_were_and_cannot_leave_the_block(word: str) -> None:
    refused = record.Answered(
        command="1-0",
        what="cancel",
        by=synthetic.GRACE,
        at=synthetic.START,
        yes=False,
        why=word,
    )
    body = comment_data.block(for_programs.refusal(refused))
    assert body.isascii()
    assert body.count("```") == 2
    assert body.count("</details>") == 1
    assert "<!--" not in body
    assert [line for line in body.splitlines() if line.startswith("/run")] == []
    assert only(body)["why"] == word
    assert only(command_answers.refused(refused))["why"] == word
    seal = record.Preregistration(
        repository=1,
        issue=1,
        title=word,
        hypothesis=word,
        predictions=(synthetic.prediction(arm=word),),
        author=synthetic.ADA,
        at=synthetic.START,
        text_sha256="0" * 64,
    )
    assert only(seal_comments.sealed(seal))["predictions"][0]["arm"] == word


def test_a_plan_says_the_time_of_everything_and_of_training() -> None:
    assert " of training alone (without starting and compiling) on " in plan_comment.plan(PLAN)
    assert PLAN.plan
    low, high = PLAN.plan.cost.seconds
    steps = len(PLAN.plan.steps)
    body = plan_comment.plan(PLAN.model_copy(update={"per_step": 60.0}))
    whole = format.between(low + 60.0 * steps, high + 60.0 * steps)
    assert f"about **{whole}**, of which {format.between(low, high)} training, on " in body
