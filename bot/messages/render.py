"""Every sentence the bot says on GitHub, short ones here, long ones in `templates/`. Pure.

Facts in, Markdown out. Answers come first, tables after, details folded. What people wrote
(titles, hypotheses, reasons) passes through `text`, `prose` or `code`, so that it is shown as they
wrote it and can neither mention anybody nor break a table, a fence or a marker.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import yaml

from bot.messages import loss_curves
from bot.model.commands import MOST as MOST_COMMANDS
from bot.model.commands import MOST_READ, Reading
from bot.model.escape import code, fenced, prose, text
from bot.model.keys import CommandKey
from bot.model.thread import Isolated, Message, Ran, Thread
from runner.analysis import (
    designs,
    power,
    promotion,
    registration_review,
    run_comparison,
    speedrun_rows,
    verdicts,
)
from runner.analysis.registration_review import Registration, Review, Weighed
from runner.analysis.text_diff import text_diff
from runner.history import forecasts
from runner.lib import format
from runner.planning import cost as planning_cost
from runner.publish import step_summary
from runner.schema import prediction_forms
from runner.schema import record as schema_record
from runner.schema.devices import KINDS
from runner.schema.record import (
    Approval,
    Edit,
    Plan,
    PlanRecord,
    Preregistration,
    Run,
    StepEnd,
    Verdict,
    command_of,
)

MOST_BODY = 60_000  # characters; GitHub's own limit is 65,536
MOST_DRAWN = 40  # steps of a flow chart
MOST_LINE = 600  # characters of one line of a step's configuration
MOST_COLUMNS = 12  # keys in which arms differ, in one table
MOST_OWN = 2_000  # likewise of what an arm says to code of its own
OWN = "own code"  # in the place of what is not known of a model of the experiment's own
MOST_SHOWN = (1000, 200, 100, 50, 20, 5, 1)  # entries of a list; the first that fits
FOLD_END = "</details>"
MARKS = {"confirmed": "✅", "refuted": "❌", "inconclusive": "◻️"}

_jinja = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    auto_reload=False,  # a bot that runs says what it said when it started
    autoescape=False,  # Markdown, not HTML: strangers' words pass `text` or `code`
)


@jinja2.pass_context
def _rest(context: jinja2.runtime.Context, items: Collection[Any], most: int) -> str:
    """How many entries of a list are not shown, and where they are."""
    if len(items) <= most:
        return ""
    more = f"{len(items) - most} more"
    return f"… and [{more}]({context['link']})" if context.get("link") else f"… and {more}"


_jinja.globals.update(rest=_rest, foreseen=speedrun_rows.foreseen)
_jinja.filters.update(
    upto=lambda items, most: list(items)[:most],
    text=text,
    code=code,
    prose=prose,
    fenced=fenced,
    flops=lambda value: OWN if value is None else format.flops(value),
    duration=format.duration,
    between=lambda seconds: format.between(*seconds),
    many=format.many,
    count=lambda value: OWN if value is None else format.count(value),
    percent=format.percent,
    sure=format.sure,
)


def _say(template: str, **facts: Any) -> str:
    """The template with as many entries of its lists (`most`) as fit into a comment."""
    for most in MOST_SHOWN:
        drawn = _jinja.get_template(f"{template}.md.j2").render(most=most, **facts)
        body = re.sub(r"\n{3,}", "\n\n", drawn).strip()
        if len(body) <= MOST_BODY:
            return body
    raise AssertionError(f"{template} does not fit into a comment")


# ── Preregistration ──────────────────────────────────────────────────────────────────────────


def sealed(seal: Preregistration) -> str:
    """What the lab understood, and the seal."""
    return _say("sealed", seal=seal, sentence=sentence)


def not_sealed(problems: tuple[str, ...]) -> str:
    """Why an issue from the form is not sealed."""
    return _say("not-sealed", problems=problems)


def edited(seal: Preregistration, edit: Edit, before: str | None = None) -> str:
    """A sealed issue was edited; `before` is how it read until then."""
    known = before is not None and edit.text is not None
    diff = text_diff(before or "", edit.text or "") if known else ()
    return _say("edited", seal=seal, edit=edit, diff=diff)


def sentence(prediction: Any) -> str:
    """A prediction in words; its arms are strangers' words until a plan has resolved them."""
    drawn = {"": "{}", "metric": "`{}`", "arm": "`{}`", "expect": "**{}**"}
    return "".join(
        drawn[what].format(code(words) if what == "arm" else words)
        for what, words in prediction_forms.parts(prediction)
    )


# ── Plan ─────────────────────────────────────────────────────────────────────────────────────


def plan(record: PlanRecord, repository_url: str = "") -> str:
    """What would run at a commit, and in what code of its own would, or what is wrong there."""
    if record.plan is None:
        return _say("plan-problems", record=record)
    folder = quote(record.plan.experiment)
    link = f"{repository_url}/tree/{record.commit}/{folder}" if repository_url else ""
    arms = _settings(record.plan) if record.plan.data else {}
    return _say(
        "plan" if record.plan.data else "plan-steps",
        link=link,
        record=record,
        plan=record.plan,
        steps=_steps(record),
        standings=Counter(sorted(one.state for one in record.standings.values())),
        cost=planning_cost.left(record.plan, record.standings),
        drawing=_drawing(record.plan),
        told=power.told(record.plan, record.plan.predictions, record.spread),
        own_code=None if record.isolation else own_code(record.plan),
        runs_in=runs_in(record.plan, record.isolation),
        differing=_differing(arms),
        columns=MOST_COLUMNS,
        value=lambda arm, key: _value(arms[arm], key),
        peak=KINDS[record.plan.resources.kind].peak_flops * record.plan.resources.count,
        lines=lambda arm: _arm_lines(arms[arm]),
        sentence=sentence,
        **_foretold(record),
    )


def _foretold(record: PlanRecord) -> dict[str, Any]:
    """The level of the plan's forecasts, and by reason the arms of which there is none."""
    by_reason: dict[str, list[str]] = {}
    for arm, why in record.no_forecast.items():
        by_reason.setdefault(why, []).append(f"`{code(arm)}`")
    more = {why: f" and {len(arms) - 3} more" for why, arms in by_reason.items() if len(arms) > 3}
    all_alike = not record.forecasts and len(by_reason) == 1
    return {
        "level": next((one.level for one in record.forecasts.values()), 0.0),
        "unforetold": [
            (why, "" if all_alike else ", ".join(arms[:3]) + more.get(why, ""))
            for why, arms in by_reason.items()
        ],
    }


def folded(record: PlanRecord, by: int, repository_url: str = "") -> str:
    """The comment of a plan after which plan `by` came."""
    head = (
        f"<details><summary>Plan {record.n}, for {record.commit[:12]}: plan {by} has taken its "
        "place</summary>\n\n"
    )
    body = plan(record, repository_url)
    if len(body) > MOST_BODY - len(head) - 20:
        return head + f"Its comment is too long to be folded whole.\n\n{FOLD_END}"
    return head + body + f"\n\n{FOLD_END}"


def plan_title(record: PlanRecord) -> str:
    """The plan in one line, for a check."""
    if record.plan is None:
        number = len(record.problems)
        return "1 problem" if number == 1 else f"{number} problems"
    plan, cost = record.plan, planning_cost.left(record.plan, record.standings)
    what = format.many(cost.runs, "run") if plan.data else format.many(len(plan.steps), "step")
    return f"{what}, {format.flops(cost.model_flops)} model FLOPs"


def runs_in(plan: Plan, isolation: Isolated) -> str:
    """What the plan's own code would run in; empty where it has none, or cannot run."""
    if not (isolation and own_code(plan)):
        return ""
    listed = _own_names(plan) or "its declaration"
    if isolation == "trusted":
        return (
            f"Code of its own ({listed}) would run isolated by nothing: this lab's "
            "operator trusts what is approved. Read it before you approve it."
        )
    return (
        f"Code of its own ({listed}) would run isolated: without network, and with nothing "
        "in reach but its inputs and its output."
    )


def own_code(plan: Plan) -> str | None:
    """Why a lab that cannot isolate code does not run this plan; None if it does."""
    isolated = (
        "the lab runs such code only where it is isolated, which it cannot be here. "
        f"`regatta run {code(plan.experiment)}` runs it on your own machine."
    )
    if listed := _own_names(plan):
        return f"It has code of its own ({listed}), and {isolated}"
    if plan.compiled:
        return f"It is declared by code of its own (`experiment.py`), and {isolated}"
    return None


def _own_names(plan: Plan) -> str:
    """The arms, or else the steps, that have code of the experiment's own; empty if none has."""
    names = plan.own_code()
    if plan.data:
        names = [name for name, arm in plan.arms.items() if arm.own] or names
    listed = ", ".join(f"`{code(name)}`" for name in names[:5])
    return listed + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _steps(record: PlanRecord) -> list[dict[str, Any]]:
    """What is said of each step of a plan, each after its inputs."""
    assert record.plan
    return [
        {
            "name": name,
            "do": step.do,
            "alias": step.alias,
            "standing": record.standings.get(name),
            "takes": _counted(other.partition("/")[0] for other in step.needs),
            "config": _flow_lines(step.config),
            "fingerprint": step.fingerprint,
            "resources": f"{step.resources.count} × {step.resources.kind}",
        }
        for name, step in step_summary.ordered(record.plan.steps).items()
    ]


def _drawing(plan: Plan) -> str:
    """A flow chart of the steps; empty where it would be too large to be read."""
    if len(plan.steps) > MOST_DRAWN:
        return ""
    drawn = "\n".join(step_summary.mermaid(plan.steps))
    return drawn if len(drawn) <= MOST_BODY // 6 else ""


def _counted(names: Iterable[str]) -> str:
    counts = Counter(names)
    return ", ".join(f"{name} × {n}" if n > 1 else name for name, n in counts.items())


def _flow_lines(config: Mapping[str, Any], most: int = MOST_LINE) -> list[str]:
    """Configuration as YAML, a line a section; nothing in it can end a fence."""
    given = {key: value for key, value in config.items() if value not in (None, {})}
    lines = []
    for key, value in given.items():
        if isinstance(value, Mapping):
            value = {name: inner for name, inner in value.items() if inner is not None}
        flow = yaml.safe_dump(
            value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False
        )
        words = fenced(
            f"{key}: {flow.removesuffix(chr(10)).removesuffix(chr(10) + '...')}", MOST_BODY
        )
        lines.append(words if len(words) <= most else words[:most] + " …")
    return lines


def _settings(plan: Plan) -> dict[str, dict[str, dict[str, Any]]]:
    """All that says how each arm is trained, by section; of an older lab's plans what is known."""
    steps = {arm: plan.steps[name].config for (arm, _), name in plan.trained().items()}
    return {
        name: {
            "model": arm.model.model_dump(mode="json", exclude_none=True),
            "train": arm.train.model_dump(mode="json", exclude_none=True),
            "own": arm.own,
            "options": steps.get(name, {}).get("options", {}),
            "compute": steps.get(name, {}).get("compute", {}),
        }
        for name, arm in plan.arms.items()
    }


def _arm_lines(arm: Mapping[str, Any]) -> list[str]:
    """An arm's settings, whole but for what code of its own is told: there is no end to that."""
    labs = ("train",) if "model" in arm["own"] else ("model", "train")
    return [
        line
        for section, values in arm.items()
        for line in _flow_lines({section: values}, MOST_BODY if section in labs else MOST_OWN)
    ]


def _differing(arms: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """The keys in which the arms' settings differ, as `train.learning_rate`. Of models of several
    kinds, what all of them have: which function makes one differs, too."""
    alike = len({arm["own"].get("model") for arm in arms.values()}) == 1
    keys = dict.fromkeys(
        f"{section}.{key}"
        for arm in arms.values()
        for section, values in arm.items()
        for key in values
        if section != "model" or alike or all(key in other["model"] for other in arms.values())
    )
    return [key for key in keys if len({_value(arm, key) for arm in arms.values()}) > 1]


def _value(arm: Mapping[str, Mapping[str, Any]], key: str) -> str:
    section, _, name = key.partition(".")
    value = arm[section].get(name)
    return "–" if value is None else format.flow(value)


# ── Commands ─────────────────────────────────────────────────────────────────────────────────


def refused(approval: Approval) -> str:
    """Why a `/run` (or `/retry`, `/reproduce`) started nothing."""
    return cannot(approval.by.login, f"/{approval.what}", approval.why)


def waits(approval: Approval) -> str:
    """What a `/run` still waits for, which somebody permitted has written."""
    return f"**Noted:** `/run` by {text(approval.by.login)}. {prose(approval.waits)}"


def cannot(login: str, command: str, why: str) -> str:
    """A command that was refused, to whom, and why."""
    refusal = f"**Not done:** `{command}` by {text(login)}. {prose(why)}"
    return f"{refusal}\n\nNothing was started or stopped."


def hint(reading: Reading) -> str:
    """Somebody seems to have meant a command."""
    lines = [
        f"`/{code(typed)}` is no command here; did you mean `/{code(meant)}`?"
        for typed, meant in reading.near_misses
    ]
    if reading.swallowed:
        lines.append(
            "A command inside a quote, a list or a table does not count; Markdown also draws the "
            "line after a quote into it. Leave an empty line before the command."
        )
    if reading.too_long:
        lines.append(
            f"Commands are looked for in the first {MOST_READ:,} characters of a comment; what "
            "follows them does not count."
        )
    if reading.too_many:
        lines.append(f"Only the first {MOST_COMMANDS} commands of a comment count.")
    elif not reading.commands:
        lines.append("Nothing was done.")
    return "\n".join([*lines, "", "`/help` lists the commands."])


def type_again(message: Message) -> str:
    """A command was found late, and nobody can say that it is still what its author wants."""
    edited, what = "it was edited since", "comment"
    if message.via == "review":
        what = "review"
        edited = "it was edited since, or GitHub does not say that it was not"
    why = edited if message.edited else "it is more than a day old"
    return (
        f"**Please type it again:** I did not hear of this {what} by {text(message.author.login)} "
        f"when it was written ({message.at:%Y-%m-%d %H:%M} UTC), and {why}, so I do nothing on its "
        "word. If it is still wanted, a new comment does it."
    )


def help_text(is_pull: bool) -> str:
    """The commands."""
    return _say("help", is_pull=is_pull)


def status_of(thread: Thread) -> str:
    """What runs on a thread."""
    return _say("status-of", link=thread.site, executions=thread.executions, plans=thread.plans)


# ── Execution ────────────────────────────────────────────────────────────────────────────────


_HEADLINES = {
    "queued": ("🕓", "Queued"),
    "running": ("🏃", "Training"),
    "done": ("🏁", "Done"),
    "failed": ("⚠️", "Failed"),
    "cancelled": ("🛑", "Cancelled"),
    "voided": ("🛑", "Not started"),
}


_VIA = {"comment": "", "review": " in a review", "button": " by a button"}  # how an approval came


def _via(ran: Ran) -> str:
    origin = ran.execution.origin
    return _VIA[CommandKey.parse(command_of(origin.approval)).via] if origin else ""


def page(ran: Ran, site: str) -> str:
    """Where all of an execution is shown; empty if the lab's site has no address."""
    return f"{site}/executions/{ran.execution.id}/" if site else ""


def status(ran: Ran, now: datetime | None = None, head: str | None = None, site: str = "") -> str:
    """How far an execution is; edited as it goes. With `now`, and its place in the queue; with
    `head`, and where the branch has gone meanwhile."""
    icon, headline = _headline(ran)
    if ran.life.state == "cancelled" and ran.result:
        headline = prose(ran.result.why[:1].upper() + ran.result.why[1:])
    elif ran.result and ran.result.why:
        headline += f": {prose(_why(ran))}"
    steps = ran.execution.plan.steps
    fraction = ran.progress.fraction if ran.progress else len(ran.steps) / max(1, len(steps))
    return _say(
        "status",
        link=page(ran, site),
        steps=_ends(ran),
        ends=len(ran.steps),
        ended=step_summary.ended,
        icon=icon,
        headline=headline,
        state=ran.life.state,
        execution=ran.execution,
        origin=ran.execution.origin,
        progress=ran.progress,
        fraction=fraction,
        bar="█" * round(20 * fraction) + "░" * (20 - round(20 * fraction)),
        lost=[a for a in ran.life.attempts if a.ended and a.ended.how == "lost"],
        result=ran.result,
        head=head,
        via=_via(ran),
        place=prose(ran.place.words(int(now.timestamp()))) if ran.place and now else "",
    )


def status_title(ran: Ran) -> str:
    """An execution's state in one line, for a check."""
    if not ran.execution.plan.data and not ran.result:
        return f"{_headline(ran)[1]}: {len(ran.steps)} of {len(ran.execution.plan.steps)}"
    if ran.result and ran.result.verdicts:
        return _tally(ran.result.verdicts)
    return _headline(ran)[1]


def _headline(ran: Ran) -> tuple[str, str]:
    plan = ran.execution.plan
    if ran.life.state == "running" and not plan.data:
        return "🏃", "Making the steps"
    if ran.life.state == "running" and ran.steps.keys() >= set(plan.trained().values()):
        return "🔎", "Scoring the models"
    return _HEADLINES[ran.life.state]


def _why(ran: Ran) -> str:
    """Why an execution failed. Where no run came to its end, each of them says why itself."""
    if ran.execution.plan.data and ran.runs and all(run.state == "failed" for run in ran.runs):
        return "no run was trained to its end, so that there is none to score"
    return ran.result.why if ran.result else ""


def _ends(ran: Ran) -> list[tuple[str, StepEnd | None]]:
    """The steps and how they ended, where they were declared as such."""
    plan = ran.execution.plan
    found = {} if plan.data else step_summary.ordered(plan.steps)
    return [(name, ran.steps.get(name)) for name in found]


def result(thread: Thread, ran: Ran, review: Review | None = None) -> str:
    """The answer: verdicts first, then figures, curves and the receipt. `review`: of what is under
    its preregistration, if it has one."""
    if ran.result is None:
        raise AssertionError(f"{ran.execution.id} has no result yet")
    plan, result = ran.execution.plan, ran.result
    scores = verdicts.figures_of(ran.runs)
    summaries = {arm: verdicts.arm_summary(plan, scores, arm) for arm in plan.arms}
    return _say(
        "result",
        link=page(ran, thread.site),
        **_under(ran, review),
        again=_again(thread, ran),
        steps=_ends(ran),
        found=_found(ran),
        ended=step_summary.ended,
        state=result.state,
        result=result,
        why=_why(ran),
        tally=_tally(result.verdicts),
        judged=judged,
        failed=[run for run in ran.runs if run.state == "failed"],
        scored=[run for run in ran.runs if run.evaluated],
        plan=plan,
        summary=lambda arm: str(summaries[arm]),
        seeds=lambda arm: _seeds(ran.runs, arm),
        picture=loss_curves.line(thread, ran),
        execution=ran.execution,
        origin=ran.execution.origin,
        receipt=_receipt(ran),
        foretold=list(forecasts.outcomes(ran.execution, scores)),
        gate=promotion.gate(plan, ran.runs) if result.state == "done" else None,
    )


def _found(ran: Ran) -> str:
    """Which of an execution's runs others had made before; empty where none was, and where a table
    of steps says it."""
    plan = ran.execution.plan
    found = {
        schema_record.run_name(*run): ran.steps[name].by
        for run, name in (plan.trained() if plan.data else {}).items()
        if name in ran.steps and ran.steps[name].state == "cached"
    }
    if not found:
        return ""
    by = [f"`{code(one)}`" for one in dict.fromkeys(found.values()) if one]
    whole = format.many(len(plan.runs()), "run")
    more = f" and {len(by) - 3} more" if len(by) > 3 else ""
    return f"{len(found)} of {whole} had been made before" + (
        f", by {', '.join(by[:3])}{more}" if by else ""
    )


def _again(thread: Thread, ran: Ran) -> dict[str, Any] | None:
    """How what was run once more came out beside the first time; None for another execution."""
    if not ran.execution.reproduces or ran.result is None or ran.result.state != "done":
        return None
    known = {one.execution.id: one for one in thread.executions}
    first = known.get(ran.execution.reproduces)
    if first is None:
        return None
    before, now = (
        {schema_record.run_name(run.arm, run.seed): run.evaluated for run in one.runs}
        for one in (first, ran)
    )
    found = run_comparison.compare(before, now)
    return {
        "whole": run_comparison.whole(found),
        "runs": found,
        "differing": run_comparison.differing(_receipt(first), _receipt(ran)),
    }


def _receipt(ran: Ran) -> dict[str, str]:
    training = [a.ended for a in ran.life.attempts if a.ended and a.ended.how == "finished"]
    return training[-1].receipt if training else {}


def verdict(thread: Thread, ran: Ran, earlier: Mapping[str, str] | None = None) -> str:
    """How the predictions came out, for the issue that made them. `earlier` as a `Registration` has
    it."""
    if ran.result is None or thread.seal is None:
        raise AssertionError(f"{ran.execution.id} has no result or no seal")
    outcomes = tuple(one.outcome for one in thread.executions)
    registration = Registration(thread.seal, thread.edits, outcomes, earlier or {})
    return _say(
        "verdict",
        link=page(ran, thread.site),
        **_under(ran, registration_review.review(registration)),
        tally=_tally(ran.result.verdicts),
        headline=_HEADLINES[ran.life.state][1],
        verdicts=ran.result.verdicts,
        judged=judged,
        why=_why(ran),
        origin=ran.execution.origin,
        execution=ran.execution,
        seal=thread.seal.seal[:16],
    )


def _under(ran: Ran, review: Review | None) -> dict[str, Any]:
    """What the template `under` says: what counts under the preregistration, and what of this
    execution is not as it was sealed."""
    if review is None or ran.execution.id not in {x.outcome.execution.id for x in review.weighed}:
        return {"review": None, "deviations": (), "beside": ""}
    weighed = review.of(ran.execution.id)
    again = "Run again: " if review.counted and not weighed.counts else ""
    if registration_review.KNOWN in weighed.why_not:
        again = "Begun before the seal: "
    return {
        "review": review,
        "weighed": weighed,
        "beside": "Exploratory: " if weighed.exploratory else again,
        "deviations": review.deviations(ran.execution.id),
        "result_state": ran.life.state,
        "pooled": designs.pooled,
        "tally_of": _tally_of,
    }


def _tally_of(weighed: Weighed) -> str:
    result = weighed.outcome.result
    return _tally(result.verdicts) if result else ""


def judged(verdict: Verdict) -> str:
    """One prediction and how it came out, the outcome first."""
    predicted = f"{sentence(verdict.prediction)} ({format.sure(verdict.prediction.confidence)})"
    if verdict.outcome == "inconclusive":  # then `why` says so itself
        why = verdict.why[:1].upper() + verdict.why[1:]
        return f"{MARKS[verdict.outcome]} **{prose(why)}.** Predicted: {predicted}."
    line = f"{MARKS[verdict.outcome]} **{verdict.outcome.capitalize()}:** {predicted}. "
    line += f"{prose(verdict.why)}."
    if verdict.beyond_two_se is not None:
        line += f" The difference is {'beyond' if verdict.beyond_two_se else 'within'} 2·SE."
    return line


def _tally(found: tuple[Verdict, ...]) -> str:
    parts = []
    for outcome, mark in MARKS.items():
        number = sum(verdict.outcome == outcome for verdict in found)
        if number:
            parts.append(f"{mark} {number} {outcome}")
    return " · ".join(parts)


def _seeds(runs: tuple[Run, ...], arm: str) -> str:
    return ", ".join(
        f"{run.evaluated.bpb:.4f}" if run.evaluated else "failed" for run in runs if run.arm == arm
    )
