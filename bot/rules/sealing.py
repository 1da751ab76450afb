"""An issue from the experiment form is a preregistration: parsed, sealed, labelled. Pure.

The seal is a record (SHA-256 over hypothesis, predictions, author and time). Later edits are
recorded and announced; they do not change the seal.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.messages import seal_comments
from bot.model.actions import LABELS, Action, Label, Say, Write
from bot.model.keys import Key
from bot.model.thread import Issue, Thread
from bot.rules import which_plan
from runner.analysis.verdicts import BadExpectation, parse_expect
from runner.lib import problems, yaml_lines
from runner.lib.complaints import Complaints
from runner.lib.problems import Problem
from runner.schema import metrics, prediction_forms
from runner.schema.record import ARM_OF_STEPS, FINAL_STATES, Edit, Prediction, Preregistration

NO_RESPONSE = "_No response_"
MAX_PREDICTIONS = 20
EXAMPLES = {
    "metric": "eval/bpb",
    "arm": "fast",
    "versus": "slow",
    "order": "[wide, deep, plain]",
    "exponent": "[s1, s2, s3, s4]",
    "smaller": "[s1, s2, s3]",
    "axis": "model_flops",
    "expect": '"< -0.05"',
    "confidence": "80 %",
}
FORM = EXAMPLES.keys() - {"metric", "expect", "confidence"}  # the keys that determine the form
# A line that YAML would parse as the start of a folded text.
BARE = re.compile(r"(\s*(?:-\s+)?expect:\s+)([>|][^\"'#]*[^\"'#\s])\s*")


class NotReadable(Exception):
    """An issue of the form that cannot be sealed; `problems` are sentences."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def rules(thread: Thread) -> Iterator[Action]:
    """What should exist on an issue."""
    if thread.seal is None:
        if thread.news:
            yield from _seal(thread)
        return
    yield Say(Key("sealed"), seal_comments.sealed(thread.seal))
    if thread.news:
        yield from _edits(thread, thread.seal)
    before = thread.seal.text
    for edit_number, edit in enumerate(thread.edits, 2):
        yield Say(Key("edited", str(edit_number)), seal_comments.edited(thread.seal, edit, before))
        before = edit.text
    yield _label(thread)


def _seal(thread: Thread) -> Iterator[Action]:
    issue = thread.issue()
    if issue is None or not issue.open or which_plan.is_ignored(thread, issue.author):
        return
    if thread.restored is not None and Key("sealed") in thread.said:
        return  # the seal is lost, and the text may have been edited
    try:
        sealed = read(issue, thread.form(), thread)
    except NotReadable as error:
        yield Say(Key("unread", _digest(issue)[:12]), seal_comments.not_sealed(error.problems))
    else:
        if sealed:
            yield Write(f"{_folder(thread)}/1", sealed)


def _edits(thread: Thread, seal: Preregistration) -> Iterator[Action]:
    issue = thread.issue()
    if issue is None:
        return
    last = thread.edits[-1].text_sha256 if thread.edits else seal.text_sha256
    if _digest(issue) != last:
        edit = Edit(at=thread.now, text_sha256=_digest(issue), text=_text(issue))
        yield Write(f"{_folder(thread)}/{len(thread.edits) + 2}", edit)


def _label(thread: Thread) -> Label:
    """The one label, derived from the state of this preregistration."""
    live = [ran for ran in thread.executions if not ran.result]
    ended = [ran for ran in thread.executions if ran.life.state in FINAL_STATES]
    judged = [ran for ran in ended if ran.result and ran.result.state in ("done", "failed")]
    if live:
        return Label(LABELS["running"], f"running.{live[-1].execution.id}")
    if judged:
        last = max(judged, key=lambda ran: ran.result.at if ran.result else thread.now)
        # The label returns after each run that was cancelled or voided.
        cause = f"{last.life.state}.{last.execution.id}.{len(ended)}"
        return Label(LABELS[last.life.state], cause)
    plans = [plan for plan in thread.plans if plan.plan]
    if plans:
        # A cancelled or voided run leaves the plan: the label is set again once for each.
        return Label(LABELS["planned"], f"planned.{len(ended)}")
    return Label(LABELS["wishlist"], "wishlist")


# ── Reading the form ─────────────────────────────────────────────────────────────────────────


def read(issue: Issue, form: Mapping[str, str], thread: Thread) -> Preregistration | None:
    """The preregistration in an issue of the form; None if it is another issue.

    Raises NotReadable.
    """
    answers = _answers(issue.body, form)
    if answers is None:
        return None
    wrong = []
    if not issue.title.strip():
        wrong.append("The issue has no title. Write one.")
    hypothesis = answers.get("hypothesis", "")
    if not hypothesis:
        label = form.get("hypothesis", "Hypothesis")
        wrong.append(f"`{label}` is empty. Say in a sentence or two what you expect and why.")
    predictions = _predictions(answers.get("predictions", ""), form, wrong)
    if wrong:
        raise NotReadable(wrong)
    return Preregistration(
        repository=thread.id.repository,
        issue=thread.id.number,
        title=issue.title.strip(),
        hypothesis=hypothesis,
        predictions=predictions,
        author=issue.author,
        at=thread.now,
        text_sha256=_digest(issue),
        text=_text(issue),
    )


def _answers(body: str, form: Mapping[str, str]) -> dict[str, str] | None:
    """Field id → answer. GitHub renders a form as `### Label`, an empty line, the answer. A heading
    of another field, or in code, is a part of the answer, if all are there in the form's order."""
    answers = _sections(body, form, in_order=True)
    if len(answers) < len(form):
        answers = _sections(body, form, in_order=False)
    if not {"hypothesis", "predictions"} & answers.keys():
        return None
    texts = {field: "\n".join(lines).strip() for field, lines in answers.items()}
    return {field: "" if text == NO_RESPONSE else text for field, text in texts.items()}


def _sections(body: str, form: Mapping[str, str], *, in_order: bool) -> dict[str, list[str]]:
    """Field id → the lines below its heading."""
    by_heading = {f"### {label}": field for field, label in form.items()}
    answers: dict[str, list[str]] = {}
    field, fence = None, ""
    for line in body.splitlines():
        heading, mark = by_heading.get(line.strip()), re.match(r" {0,3}(`{3,}|~{3,})", line)
        # The form itself writes predictions as code.
        if in_order and mark and field != "predictions":
            fence = mark[1] if not fence else fence * (not line.strip().startswith(fence))
        is_next = not fence and [heading] == [*form][len(answers) : len(answers) + 1]
        if heading and heading not in answers and (is_next or not in_order):
            field = heading
            answers[field] = []
        elif field:
            answers[field].append(line)
    return answers


def _predictions(text: str, form: Mapping[str, str], wrong: list[str]) -> tuple[Prediction, ...]:
    """The predictions in an answer of the form; adds their problems to `wrong`."""
    label = form.get("predictions", "Predictions")
    while fenced := re.fullmatch(r"(`{3,}|~{3,})\w*\n(.*?)\n?\1", text, re.DOTALL):
        text = fenced[2].strip("\n")
    if not text.strip():
        wrong.append(f"`{label}` is empty. Write at least one, as a YAML list.")
        return ()
    quoted, bare = _with_quotes(text)
    try:
        document = problems.parsed(quoted, f"`{label}`", examples=EXAMPLES)
    except problems.BadExperiment as error:
        wrong += map(_sentence, (*bare.values(), *error.problems))
        return ()
    entries = document.value
    if not isinstance(entries, list) or not entries:
        wrong.append(f"`{label}` must be a YAML list; begin each prediction with `- metric:`.")
        if not isinstance(entries, dict):
            return ()
        document = replace(  # it is meant as one of a list
            document, value=[entries], lines={(0, *at): n for at, n in document.lines.items()}
        )
    complaints = Complaints(document)
    if len(entries) > MAX_PREDICTIONS:
        words = f"has more than {MAX_PREDICTIONS} entries; take some out"
        complaints.say((), words)
    found: list[Prediction] = []
    for index, entry in enumerate(document.value[:MAX_PREDICTIONS]):
        prediction = _prediction(entry, index, complaints)
        if prediction and _about(prediction) in map(_about, found):
            complaints.say((index,), "an entry above says that; say it once")
        found += [prediction] if prediction else []
    said = [one for one in complaints.found if one.field != "expect" or one.line not in bare]
    wrong += map(_sentence, sorted((*bare.values(), *said), key=lambda one: one.line or 0))
    return tuple(found)


def _sentence(problem: Problem) -> str:
    said = str(problem)
    return said if said.endswith("?") else f"{said}."


def _with_quotes(text: str) -> tuple[str, dict[int, Problem]]:
    """The text with quotes around what YAML would parse differently, and the message for each by
    line."""
    bare: dict[int, Problem] = {}
    lines = text.split("\n")
    for n, line in enumerate(lines):
        if found := BARE.fullmatch(line):
            lines[n] = f'{found[1]}"{found[2]}"'
            words = "YAML reads a bare `>` as something else; write"
            said = f'{words} `expect: "{found[2]}"` in quotes'
            bare[n + 1] = Problem("`Predictions`", n + 1, "expect", said)
    return "\n".join(lines), bare


def _about(prediction: Prediction) -> Prediction:
    """The prediction without its confidence, to detect duplicates, which would count twice."""
    return prediction.model_copy(update={"confidence": 0.5})


def _names(prediction: Prediction) -> Iterator[tuple[yaml_lines.Path, str]]:
    """The arms that it names, each with its place."""
    for key in ("arm", "versus"):
        if (name := getattr(prediction, key)) is not None:
            yield (key,), name
    for key in prediction_forms.FEWEST:
        yield from (((key, n), name) for n, name in enumerate(getattr(prediction, key)))


def _prediction(written: Any, index: int, complaints: Complaints) -> Prediction | None:
    """The entry with this index; None if it is unreadable. Adds all problems."""
    entry = written
    if isinstance(entry, dict):
        entry = {**entry}
        if entry.get("order"):
            entry.setdefault("expect", prediction_forms.ANY_STEP)
        share = re.fullmatch(r"\s*([0-9]+|[0-9]*\.[0-9]+)\s*%\s*", str(entry.get("confidence", "")))
        if share:
            entry["confidence"] = float(share[1]) / 100
        if isinstance(entry.get("expect"), str):
            entry["expect"] = _expected(entry, index, complaints)
    prediction, read, lost = complaints.read(Prediction, entry, lambda place: (index, *place))
    if not isinstance(read, dict):
        return None
    known = prediction or Prediction.model_construct(**{"metric": metrics.BPB, **read})
    if prediction is None and FORM.isdisjoint(str(place[0]) for place in lost):
        for key, words in prediction_forms.wrong(known):
            complaints.say((index, key), words)
    metric = read.get("metric")
    if isinstance(metric, str) and not metrics.wrong(metric) and (words := metrics.never(metric)):
        complaints.say((index, "metric"), words)
    for path, name in _names(known):
        if not re.fullmatch(ARM_OF_STEPS, name):
            words = "can be no arm's name; the plan lists them, such as `fast` or `tune,rate=0.01`"
            complaints.say((index, *path), f"{name[:60]!r} {words}")
    return prediction


def _expected(entry: Mapping[str, Any], index: int, complaints: Complaints) -> str:
    """An entry's `expect` in canonical form; a placeholder if it is invalid."""
    try:
        expect = str(parse_expect(entry["expect"]))
    except BadExpectation as error:
        complaints.say((index, "expect"), str(error).removesuffix("."))
        return prediction_forms.ANY_STEP
    if entry.get("order") and not re.match(r">=? [0-9]", expect):
        words = (
            "of an `order` it says by how much each arm is better than the next, as "
            f"> 0 or > 0.01, and not {expect}; leave it out if any step will do"
        )
        complaints.say((index, "expect"), words)
    return expect


def _folder(thread: Thread) -> str:
    return f"preregistrations/{thread.id}"


def _digest(issue: Issue) -> str:
    """SHA-256 of an issue's title and text."""
    return hashlib.sha256(_text(issue).encode()).hexdigest()


def _text(issue: Issue) -> str:
    return f"{issue.title}\n{issue.body}"
