"""Facts in, Markdown out, through the templates in `templates/`. Pure.

Answers come first, tables after, details folded. What people wrote (titles, hypotheses, reasons)
passes through `text`, `prose` or `code`, so that it is shown as they wrote it and can neither
mention anybody nor break a table, a fence or a marker.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from bot.model import comment_data
from bot.model.escape import code, fenced, prose, text
from bot.model.site import Site
from bot.model.thread import Ran
from runner.analysis import answer, designs, findings, speedrun_position, speedrun_rows
from runner.history import lost_work
from runner.lib import format
from runner.planning import mesh_words, planned_steps, study_words
from runner.publish import step_summary
from runner.schema import metrics, prediction_forms
from runner.schema.record import Result, Verdict
from runner.spec import corpus_steps, measured, snapshots

MAX_BODY = 60_000  # characters; GitHub's own limit is 65,536
MIN_DATA = 12_000  # characters of it that are left to the data for programs
MAX_SHOWN = (1000, 200, 100, 50, 20, 5, 1)  # entries of a list; the first that fits
LITTLE = 50  # entries; with as few, texts are cut short, too
OWN = "own code"  # in the place of what is not known of a model of the experiment's own
MARKS = {"confirmed": "✅", "refuted": "❌", "inconclusive": "◻️"}

_jinja = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    auto_reload=False,  # a bot that runs says what it said when it started
    autoescape=False,  # Markdown, not HTML: strangers' words pass `text` or `code`
)


def say(template: str, data: Callable[[int], comment_data.Data] | None = None, **facts: Any) -> str:
    """The template with as many entries of its lists (`most`) as fit into a comment; then, if
    `data` makes it, the same for programs, with as many entries as fit into what is left."""
    for most in MAX_SHOWN:
        drawn = _jinja.get_template(f"{template}.md.j2").render(most=most, **facts)
        body = re.sub(r"\n{3,}", "\n\n", drawn).strip()
        if len(body) <= MAX_BODY - (MIN_DATA if data else 0):
            return f"{body}{_for_programs(data, MAX_BODY - len(body))}"
    raise AssertionError(f"{template} does not fit into a comment")


def _for_programs(data: Callable[[int], comment_data.Data] | None, room: int) -> str:
    """The folded block; empty if there is no data, or if even the shortest does not fit."""
    for most in MAX_SHOWN if data else ():
        longest = comment_data.LONG if most > LITTLE else comment_data.SHORT
        block = f"\n\n{comment_data.block(data(most), longest)}" if data else ""
        if len(block) <= room:
            return block
    return ""


def folded(summary: str, body: str) -> str:
    """What is left of a comment after which a newer one came."""
    head, end = f"<details><summary>{summary}</summary>\n\n", "\n\n</details>"
    if len(head + body + end) > MAX_BODY:
        body = "The comment is too long to keep it here."
    return head + body + end


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names as code; of many the first ones."""
    shown = ", ".join(f"`{code(name)}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def sentence(prediction: Any) -> str:
    """A prediction in words; its arms are strangers' words until a plan has resolved them."""
    return marked(prediction_forms.parts(prediction))


def explained(predictions: Iterable[Any]) -> list[tuple[str, str]]:
    """The metrics that predictions name, each with what it measures."""
    return [(one, metrics.words(one)) for one in dict.fromkeys(of.metric for of in predictions)]


def judged(verdict: Verdict, by: str | None = None) -> str:
    """The verdict on one prediction: the outcome, the numbers, then what was predicted, by whom."""
    found = findings.found(verdict)
    words = marked(found) if found else prose(verdict.why.removeprefix("inconclusive: "))
    mark, outcome = MARKS[verdict.outcome], verdict.outcome.capitalize()
    return f"{mark} **{outcome}**: {words}. {foresaid(verdict, by)}"


def foresaid(verdict: Verdict, by: str | None = None) -> str:
    """What was predicted, by whom, and how sure."""
    who = f"{text(by)} predicted" if by else "Predicted"
    said = marked(findings.predicted(verdict))
    return f"{who}: {said}, {format.sure(verdict.prediction.confidence)}."


def marked(parts: Iterable[prediction_forms.Part]) -> str:
    """A sentence in parts as Markdown. Plain parts may quote strangers."""
    drawn = {"metric": "`{}`", "arm": "`{}`", "expect": "**{}**", "figure": "**{}**"}
    return "".join(
        drawn[what].format(code(words) if what == "arm" else words) if what else _plain(words)
        for what, words in parts
    )


def _plain(words: str) -> str:
    """A plain part, with the spaces at its ends."""
    before, after = (" " if words[at:][:1] == " " else "" for at in (0, -1))
    return f"{before}{prose(words)}{after}" if words.strip() else words


def linked(ran: Ran, site: Site | None) -> str:
    """An execution's id, with a link to its page: the live one until it has a result."""
    page = site and (
        site.execution(ran.execution.id) if ran.result else site.watched(ran.execution.id)
    )
    name = f"`{ran.execution.id}`"
    return f"[{name}]({page})" if page else name


def table_of(words: str) -> list[list[str]] | None:
    """The rows of a Markdown table, the head first; None if the text is something else."""
    lines = [line.strip() for line in words.strip().splitlines()]
    rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
    is_table = len(lines) > 2 and all(line.startswith("|") for line in lines)
    if not is_table or not all(re.fullmatch(r"\s*:?-+:?\s*", cell) for cell in rows[1]):
        return None
    whole = [[cell.replace("\\|", "|").strip() for cell in row] for row in rows[:1] + rows[2:]]
    return [row[: len(rows[0])] + [""] * (len(rows[0]) - len(row)) for row in whole]


def tally(result: Result | None) -> str:
    """How many predictions had which outcome."""
    outcomes = [verdict.outcome for verdict in result.verdicts] if result else []
    return " · ".join(
        f"{mark} {outcomes.count(outcome)} {outcome}"
        for outcome, mark in MARKS.items()
        if outcome in outcomes
    )


@jinja2.pass_context
def _rest(context: jinja2.runtime.Context, items: Collection[Any], most: int) -> str:
    """How many entries of a list are not shown, and where they are."""
    if len(items) <= most:
        return ""
    more = f"{len(items) - most} more"
    return f"… and [{more}]({context['link']})" if context.get("link") else f"… and {more}"


_jinja.globals.update(
    rest=_rest,
    foreseen=speedrun_rows.foreseen,
    of_track=speedrun_position.value,
    p_value=speedrun_position.p_value,
    sentence=sentence,
    explained=explained,
    judged=judged,
    foresaid=foresaid,
    answered_by=answer.first_of,
    marked=marked,
    marks=MARKS,
    table_of=table_of,
    linked=linked,
    tally=tally,
    ended=step_summary.ended,
    lost=lost_work.told,
    pooled=designs.pooled,
    measures=measured.told,
    snapshots=snapshots.told,
    corpora=corpus_steps.told,
    uploads=planned_steps.uploads,
    study=study_words.told,
    on_devices=mesh_words.told,
    asked=planned_steps.asked,
    testing=planned_steps.testing,
    meaning=metrics.words,
    asks=metrics.asks,
    metrics_of=measured.named,
)
_jinja.filters.update(
    upto=lambda items, most: list(items)[:most],
    text=text,
    code=code,
    prose=prose,
    fenced=fenced,
    flops=lambda value: OWN if value is None else format.flops(value),
    full_stop=format.full_stop,
    duration=format.duration,
    between=lambda seconds: format.between(*seconds),
    many=format.many,
    count=lambda value: OWN if value is None else format.count(value),
    percent=format.percent,
    sure=format.sure,
    size=format.size,
    status=step_summary.status,
)
