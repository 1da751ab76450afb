"""What sentences say: what is so now, and what to do; with one mark at the end, and names as people
write them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bot.messages import command_answers, plan_comment, result_comment, status_comment
from bot.model import policy_file
from bot.model.email_reply import length_of_reply
from bot.model.policy_file import Policy
from bot.model.site import Site
from bot.rules import which_plan
from runner.history import forecasts
from runner.history.execution_index import Past
from runner.lib.format import full_stop
from runner.planning import cost
from runner.schema.record import Person, Plan, PlanRecord, Standing
from runner.store.store import Store
from tests import synthetic
from tests.decided import KINDS
from tests.unit.bot.test_approve import (
    AGENTS,
    CODE,
    OF_MIRA,
    ROBO,
    after,
    launched,
    refused,
    said_by,
    thread,
    word,
)
from tests.unit.bot.test_decide import ended, pull, ran
from tests.unit.bot.test_words import with_own

BOTUSER = Person(login="botuser", id=44)
NOTHING = thread(plans=(), said={})


def record_of(plan: Plan, **changes: object) -> PlanRecord:
    made = PlanRecord(
        repository=1, pull=2, n=1, commit="a" * 40, at=synthetic.START, plan=plan, code=CODE
    )
    return made.model_copy(update=changes)


# ── What to do ──


def test_status_says_what_gets_a_plan_where_there_is_none() -> None:
    said = command_answers.status_of(NOTHING)
    assert said == (
        "Nothing has run here yet. There is no plan here: one comes when the branch changes an "
        "experiment, which is a folder in `experiments/`."
    )
    issue = replace(NOTHING, is_pull=False)
    assert command_answers.status_of(issue) == "Nothing has run here yet."


def test_a_void_approval_says_how_it_can_be_given_again_where_that_is_possible() -> None:
    void = ran(result=ended("voided").model_copy(update={"why": "the pull request is closed"}))
    assert (
        "The approval no longer held: the pull request is closed. If that changes, a maintainer "
        "can approve again: `/run` with the code of the newest plan."
    ) in result_comment.result(pull(), void)


def test_a_plan_that_the_policy_starts_asks_nobody_to_start_it() -> None:
    alone = plan_comment.plan(OF_MIRA)
    assert "To start it" not in alone
    assert "**It starts by itself.** If it does not, a maintainer comments:" in alone
    assert f"/run {CODE}" in alone
    needs = OF_MIRA.model_copy(update={"needs_maintainer": "it has its own code"})
    asks = plan_comment.plan(needs)
    assert "A maintainer has to approve it: it has its own code." in asks
    assert "**To start it**, a maintainer comments:" in asks


def test_a_reply_by_email_to_a_plan_that_starts_by_itself_commands_nothing() -> None:
    lines = plan_comment.plan(OF_MIRA).splitlines()
    assert length_of_reply(["No.", *lines]) < len(lines) - lines[::-1].index(f"/run {CODE}")


# ── What is so now ──


def test_the_end_of_an_execution_does_not_promise_a_comment_that_may_not_be_there() -> None:
    said = status_comment.status(ran(started=True, result=ended("done")))
    assert "The result gets a comment of its own." in said
    assert "newer" not in said


def test_a_site_that_is_published_now_and_then_says_so_beside_its_links() -> None:
    done = ran(started=True, result=ended("done"))
    later = "(the site shows it when it is published next)"
    assert later in status_comment.links(done, Site("https://lab.example", live=False))
    assert later not in status_comment.links(done, Site("https://lab.example"))
    assert status_comment.links(done, None) == ""


# ── Figures that nobody knows ──


def test_no_flops_are_told_where_none_were_counted() -> None:
    plan = with_own(synthetic.plan(), "wide")
    own = plan.model_copy(update={"arms": {"mine": plan.arms["mine"]}, "steps": {}})
    unknown = own.model_copy(update={"cost": cost.cost([(own.resources, own.arms["mine"])],
                                                       own.resources, own.kinds)})  # fmt: skip
    assert unknown.cost.uncounted == 1
    assert plan_comment.title(record_of(unknown)) == "1 run"
    assert "0.00e0" not in plan_comment.plan(record_of(unknown))
    cached = {name: Standing(state="cached") for name in synthetic.plan().steps}
    assert plan_comment.title(record_of(synthetic.plan(), standings=cached)) == "0 runs"
    assert "model FLOPs" in plan_comment.title(record_of(synthetic.plan()))


def test_an_own_model_has_no_forecast_because_its_size_is_unknown(tmp_path: Path) -> None:
    plan = with_own(synthetic.plan(), "wide")
    without = forecasts.foretell(Past(Store(tmp_path)), plan).without
    assert without["mine"] == (
        "the lab knows the size of a model of the experiment's own only when it has run"
    )
    assert "it needs runs of 3 smaller models" in without["fast"]


# ── Marks and names ──


def test_a_sentence_ends_with_one_mark() -> None:
    assert full_stop("it is so") == "it is so."
    for end in (".", "?", "!", "…"):
        assert full_stop(f"it is so{end}") == f"it is so{end}"


def test_a_question_in_the_policys_mistake_keeps_its_mark_alone() -> None:
    text = b"commands:\n  run: {roles: [maintaine]}\n"
    policy = policy_file.parse({policy_file.PATH: text}, "f" * 40, KINDS)
    assert policy.problems
    why = refused(thread({("policy",): policy}))
    assert why.endswith("did you mean `maintain`?")
    assert not re.search(r"\?[.;]", why)


@pytest.mark.parametrize("why", ["did you mean `main`?", "it ran out of memory.", "nobody knows"])
def test_a_reason_with_a_mark_of_its_own_gets_no_second_one(why: str) -> None:
    outcome = ended("failed").model_copy(update={"why": why})
    for state in ("failed", "voided", "cancelled"):
        over = outcome.model_copy(update={"state": state})
        said = result_comment.result(pull(), ran(started=True, result=over))
        assert not re.search(r"[?.][.]", said), said
    not_forecast = record_of(synthetic.plan(), no_forecast={"fast": why, "slow": why})
    assert not re.search(r"[?.][.]", plan_comment.plan(not_forecast).partition("<details>")[0])


def test_a_login_is_written_as_its_owner_writes_it() -> None:
    agents = {"botuser": AGENTS["mira"]}
    known = {("policy",): Policy(sha="f" * 40, agents=agents), ("role", "botuser"): "write"}
    refusals = [
        refused(thread(known), CODE, said_by(BOTUSER)),
        refused(thread(), CODE, said_by(ROBO)),
        which_plan.forbidden(thread(known), "cancel", BOTUSER) or "",
        which_plan.sentence((launched(thread({("role", "botuser"): "none"}),
                                      word(BOTUSER, after(60))) or ("", ""))[1]),
    ]  # fmt: skip
    assert all(refusals)
    assert [re.search(r"botuser|robo", why) is not None for why in refusals] == [True] * 4
    assert not any(re.search(r"Botuser|Robo", why) for why in refusals)
