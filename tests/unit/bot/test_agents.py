"""What the policy decides about agents' plans, and which bots are heard."""

from dataclasses import replace
from typing import Any

import pytest

from bot.inbox import payloads
from bot.messages import command_answers, plan_comment
from bot.model import policy_file
from bot.model.actions import Say, Write
from bot.model.keys import CommandKey, Key
from bot.model.policy_file import PATH, Allowance, Policy
from bot.model.thread import Finding, Issue, Message, Push, Said, Thread, ThreadId
from bot.rules import agent_checks, agents, approval, sealing, slash_commands, which_plan
from runner.schema import record
from runner.schema.record import Approval, Person, Plan, PlannedRung
from tests import synthetic
from tests.decided import KINDS
from tests.scenarios.lab import form_body
from tests.unit.bot.test_approve import (
    AGENTS,
    CODE,
    HEAD,
    MIRA,
    OF_MIRA,
    after,
    lab,
    of_agent,
    said_by,
)

POLICY = Policy(sha="f" * 40, agents=AGENTS)
KEY = CommandKey("policy", 2, 1)
APP = Person(login="robo[bot]", id=99)


def decided(of: Thread) -> Approval | None:
    """The policy's decision; None if it makes none."""
    written = list(agents.rules(replace(of, news=True)))
    if not written:
        return None
    (action,) = written
    assert isinstance(action, Write)
    assert action.path == "approvals/7/2/p2-1"
    assert isinstance(action.record, Approval)
    return action.record


def of_plan(plan: Plan, **changes: Any) -> Thread:
    """An agent's pull request with this plan."""
    known = {("replan", 1): plan.fingerprint}
    return of_agent(known, plans=(OF_MIRA.model_copy(update={"plan": plan, **changes}),))


def test_the_policy_approves_the_first_gate_and_the_record_names_its_commit() -> None:
    found = decided(of_agent())
    assert found is not None
    assert found.approved
    assert found.by_policy
    assert (found.plan, found.commit, found.policy) == (1, HEAD, "f" * 40)
    assert found.by == Person(login="policy@ffffffffffff", id=0)
    assert found.fingerprint == synthetic.plan().fingerprint
    done = of_agent(approvals={KEY: found})
    (execution,) = [one.record for one in approval.follow(done) if isinstance(one, Write)]
    assert isinstance(execution, record.Execution)
    assert execution.origin is not None
    assert execution.origin.agent == MIRA
    assert execution.origin.charged == MIRA
    assert decided(done) is None, "it decides once about a plan"


def test_it_decides_about_an_agents_newest_plan_only_when_that_was_posted() -> None:
    assert decided(of_agent(said={})) is None
    assert list(agents.rules(of_agent())) == [], "without news there is nothing to decide"
    person = of_agent(plans=(OF_MIRA.model_copy(update={"agent": None}),))
    assert decided(person) is None
    for now in ({"open": False}, {"draft": True}, {"head": "c" * 40}):
        pull = replace(of_agent().answers["pull",], **now)
        assert decided(of_agent({("pull",): pull})) is None


RUNG = PlannedRung(n=2, of=3, baseline="slow", variant="fast", floor=0.5, exponent=0.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compiled": True}, "it has its own code"),
        ({"rung": RUNG}, "it is rung 2 of a ladder, after gate 1"),
    ],
)
def test_what_is_more_than_the_first_gate_needs_a_maintainer(
    changes: dict[str, Any], words: str
) -> None:
    plan = synthetic.plan().model_copy(update=changes)
    assert agent_checks.needs_maintainer(AGENTS["mira"], POLICY, plan, 3600.0) == words
    assert decided(of_plan(plan)) is None
    lowest = plan.model_copy(update={"compiled": False, "rung": RUNG.model_copy(update={"n": 1})})
    assert agent_checks.needs_maintainer(AGENTS["mira"], POLICY, lowest, 3600.0) is None


def test_only_cpus_and_what_stays_in_the_lab_and_is_small_runs_without_a_maintainer() -> None:
    plan, allowed = synthetic.plan(), AGENTS["mira"]
    gpu = plan.resources.model_copy(update={"kind": "h100"})
    on_gpu = plan.model_copy(update={"resources": gpu})
    assert agent_checks.needs_maintainer(allowed, POLICY, on_gpu, 1.0) == (
        "it asks for `h100`, which is not a CPU"
    )
    sends = synthetic.step("export", 0, {"upload": "somebody/model"}, {})
    sending = plan.model_copy(update={"steps": {"out": sends}})
    assert agent_checks.needs_maintainer(allowed, POLICY, sending, 1.0) == (
        "it sends something out of the lab"
    )
    small = POLICY.model_copy(update={"two_approvers_from": 1.0})
    assert agent_checks.needs_maintainer(allowed, small, plan, 7200.0) == (
        "an experiment of this size needs two approvers"
    )
    never = allowed.model_copy(update={"gate_1": "maintainer"})
    assert "only maintainers" in (agent_checks.needs_maintainer(never, POLICY, plan, 1.0) or "")


def test_code_that_models_and_task_files_write_needs_a_maintainer_and_the_plan_says_it() -> None:
    tests_code = synthetic.step("benchmark", 0, {"tasks": ["x.jsonl"], "samples": {"count": 1}}, {})
    asks = synthetic.step("benchmark", 0, {"tasks": ["x.jsonl"]}, {})
    plan = synthetic.plan()
    testing = plan.model_copy(update={"steps": {"score": tests_code, "asked": asks}})
    assert agent_checks.needs_maintainer(AGENTS["mira"], POLICY, testing, 1.0) == (
        "it runs Python that models write, and Python in task files"
    )
    said = plan_comment.plan(OF_MIRA.model_copy(update={"plan": testing}))
    assert "**This plan runs Python that models write, and Python in task files:**" in said
    assert "Steps: `score` " in said.replace("\n", " ")
    assert "`asked`" not in said.partition("Steps: ")[2].partition("**To start")[0]
    harmless = plan.model_copy(update={"steps": {"asked": asks}})
    assert agent_checks.needs_maintainer(AGENTS["mira"], POLICY, harmless, 1.0) is None
    assert "Python that models write" not in plan_comment.plan(OF_MIRA)


def said_by_mira() -> tuple[Message, CommandKey, str]:
    message = said_by(Person(login="mira", id=31))
    return message, message.key(0), CODE


def test_whoever_gets_an_agents_login_later_is_not_this_agent() -> None:
    named = {"mira": AGENTS["mira"].model_copy(update={"id": 31})}
    assert decided(of_agent(agents=named)) is not None
    other = {"mira": AGENTS["mira"].model_copy(update={"id": 32})}
    assert agents.agent_of(of_agent(agents=other)) is None
    gone = agent_checks.why_maintainer(of_agent(agents={}), MIRA, synthetic.plan(), HEAD, 1.0)
    assert gone == agent_checks.NO_AGENT
    app = {"old[bot]": named["mira"].model_copy(update={"id": APP.id})}
    assert not which_plan.is_ignored(of_agent(agents=app), APP)
    assert which_plan.is_ignored(of_agent(agents=named), APP)
    renamed = {"before": named["mira"]}
    assert decided(of_agent(agents=renamed)) is not None
    asked = approval.run(of_agent(agents=renamed), *said_by_mira())
    assert "`mira` is an agent, and agents never approve anything" in asked.why
    assert decided(of_agent(agents=other)) is None


@pytest.mark.parametrize("by", [0, 12])
def test_a_commit_that_somebody_else_pushed_waits_for_a_maintainer(by: int) -> None:
    assert decided(of_agent(pushes=(Push(after(-60), HEAD, by=by),))) is None
    assert decided(of_agent(pushes=())) is None
    others = (Push(after(-60), HEAD, by=31), Push(after(-50), "c" * 40, by=12))
    assert decided(of_agent(pushes=others)) is not None, "it is the agent's commit"


def test_what_was_started_once_starts_again_only_by_a_maintainer() -> None:
    found = decided(of_agent())
    assert found is not None
    again = OF_MIRA.model_copy(update={"n": 2, "at": after(100)})
    said = {Key.parse("plan.1"): Said("comment", 100, after(1))}
    said |= {Key.parse("plan.2"): Said("comment", 101, after(101))}
    known = {("refusal", MIRA, 2, None): None}
    twice = of_agent(known, plans=(OF_MIRA, again), said=said)
    assert list(agents.rules(replace(twice, news=True))) != []
    started = replace(twice, approvals={KEY: found}, news=True)
    assert list(agents.rules(started)) == []
    agent = agents.agent_of(started)
    assert agent is not None
    plan = synthetic.plan()
    assert agent_checks.needs_maintainer_here(started, agent, plan, HEAD) == (
        "this was started before in this pull request"
    )


def test_what_exceeds_the_allowance_is_refused_with_the_reason_and_nobody_can_approve_it() -> None:
    why = "This needs 6 device-hours, but the budget is 5 per agent and calendar month (UTC)."
    over = of_agent({("refusal", MIRA, 1, None): why})
    found = decided(over)
    assert found is not None
    assert not found.approved
    assert found.why == why
    (said,) = approval.follow(replace(over, approvals={KEY: found}))
    assert isinstance(said, Say)
    assert said.key == Key("refused", "p2-1")
    assert "the policy (commit `ffffffffffff`) does not allow plan 1." in said.body
    assert "5 per agent and calendar month" in said.body
    assert command_answers.refused(found) == said.body


# ── Who is heard ─────────────────────────────────────────────────────────────────────────────


def payload(body: str, kind: str = "Bot", login: str = "robo[bot]") -> dict[str, Any]:
    user = {"login": login, "id": 99, "type": kind}
    comment = {"id": 50, "user": user, "created_at": "2026-01-01T00:00:00Z", "body": body}
    return {
        "action": "created",
        "repository": {"id": 7},
        "sender": user,
        "issue": {"number": 2, "pull_request": {}},
        "comment": comment,
    }


def test_of_a_bots_comments_only_those_with_a_command_reach_the_rules() -> None:
    found = payloads.read("issue_comment", payload("/run"))
    assert found is not None
    assert found.message is not None
    assert found.message.author == APP
    assert payloads.read("issue_comment", payload("A result: `/run` was approved.")) is None
    shown = "```\n/run aaaa-bbbb-cccc-dddd-eeee\n```"
    assert payloads.read("issue_comment", payload(shown)) is None
    odd = payload("/run", login="robo")
    assert payloads.read("issue_comment", odd) is None, "a bot's login ends with [bot]"
    as_grace = payload("/run") | {"sender": {"login": "robo[bot]", "id": 99, "type": "Bot"}}
    as_grace["comment"] |= {"user": {"login": "grace", "id": 13, "type": "User"}}
    assert payloads.read("issue_comment", as_grace) is None, "what a bot sends is no person's"


def test_a_bot_that_the_policy_does_not_name_is_ignored() -> None:
    message = Message(50, APP, after(60), "/run")
    of = of_agent(messages=(message,))
    assert list(slash_commands.rules(of)) == []
    named = {**AGENTS, "Robo[bot]": Allowance(sponsor="grace", device_hours_per_month=1)}
    found = list(slash_commands.rules(of_agent(messages=(message,), agents=named)))
    (written,) = [one.record for one in found if isinstance(one, Write)]
    assert isinstance(written, Approval)
    assert written.why == "`robo[bot]` is an app, and only people can approve."


@pytest.mark.parametrize(("named", "sealed"), [(False, False), (True, True)])
def test_an_app_preregisters_only_if_the_policy_names_it(named: bool, sealed: bool) -> None:
    of = {"robo[bot]": Allowance(sponsor="grace", device_hours_per_month=1)} if named else {}
    form = {"hypothesis": "Hypothesis", "predictions": "Predictions", "notes": "Notes"}
    known = lab(agents=of) | {
        ("issue",): Issue("Experiment", form_body(), APP, open=True),
        ("form",): form,
    }
    asked = Thread(ThreadId(7, 1), "r/l", "", after(0), is_pull=False, news=True, answers=known)
    assert any(isinstance(one, Write) for one in sealing.rules(asked)) is sealed


@pytest.mark.parametrize(("what", "own"), [("/cancel", "Nothing is running here."), ("/plan", "")])
def test_an_agent_stops_and_plans_its_own_work_and_nobody_elses(what: str, own: str) -> None:
    message = Message(50, Person(login="mira", id=31), after(60), what)
    found = {("finding", "b" * 40, HEAD, 1): Finding("experiments/warm", plan=synthetic.plan())}
    adas = {("pull",): replace(of_agent().answers["pull",], author=synthetic.ADA)}

    def why(of: Thread) -> str:
        answers = [one.record for one in slash_commands.rules(of) if isinstance(one, Write)]
        (answer,) = [one for one in answers if isinstance(one, record.Answered)]
        return answer.why

    assert why(of_agent(found, messages=(message,))) == own
    assert "for its own pull request only" in why(of_agent(found | adas, messages=(message,)))


# ── The file ─────────────────────────────────────────────────────────────────────────────────


def parse(text: str) -> Policy:
    return policy_file.parse({PATH: text.encode()}, "f" * 40, KINDS)


def test_an_agent_is_named_with_its_sponsor_and_its_allowance() -> None:
    policy = parse(
        "agents:\n  robo[bot]:\n    sponsor: grace\n    kinds: [cpu]\n"
        "    device_hours_per_month: 20\n    open_proposals: 4\n    gate_1: policy\n"
    )
    assert policy.problems == ()
    allowed = policy.agent("Robo[bot]")
    assert allowed is not None
    assert (allowed.sponsor, allowed.device_hours_per_month) == ("grace", 20)
    assert (allowed.open_proposals, allowed.gate_1) == (4, "policy")
    assert policy.agent("grace") is None
    assert not policy.permits("run", "robo[bot]", "admin")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agents: {mira: {device_hours_per_month: 1}}", "`agents.mira.sponsor`"),
        ("agents: {mira: {sponsor: grace}}", "`agents.mira.device_hours_per_month`"),
        (
            "agents:\n  mira:\n    {sponsor: 'x[bot]', device_hours_per_month: 1}\n",
            "`agents.mira.sponsor`: `x[bot]` is not a person; name one who answers for it",
        ),
        (
            "agents:\n  mira: {sponsor: Mira, device_hours_per_month: 1}\n",
            "`agents.mira.sponsor`: `Mira` is not a person",
        ),
        (
            "commands: {run: {people: [Mira]}}\n"
            "agents: {mira: {sponsor: grace, device_hours_per_month: 1}}\n",
            "`commands.run.people.0`: `Mira` is an agent, and agents approve nothing",
        ),
        (
            "agents:\n  mira: {sponsor: grace, device_hours_per_month: 1, kinds: [h1000]}\n",
            "line 2, `agents.mira.kinds.0`: the lab knows no hardware `h1000`",
        ),
    ],
)
def test_a_policy_whose_agents_cannot_be_meant_says_why(text: str, problem: str) -> None:
    (said,) = parse(text).problems
    assert problem in said
