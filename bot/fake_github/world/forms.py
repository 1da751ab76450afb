"""Issue forms: from the YAML under `.github/ISSUE_TEMPLATE/` to fields, from answers to a body.

The body is what GitHub makes of a form: `### Label`, a blank line, the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

NO_RESPONSE = "_No response_"
KINDS = ("input", "textarea", "dropdown", "checkboxes", "markdown")


class BadForm(Exception):
    """The form's YAML cannot be shown; the message says why."""


@dataclass(frozen=True)
class Option:
    label: str
    required: bool = False


@dataclass(frozen=True)
class Field:
    kind: str
    id: str
    label: str = ""
    description: str = ""
    placeholder: str = ""
    value: str = ""  # prefilled; of a markdown field, its text
    render: str = ""  # the language of the fence around the answer
    required: bool = False
    multiple: bool = False
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class IssueForm:
    name: str
    description: str
    title: str
    labels: tuple[str, ...]
    fields: tuple[Field, ...]


def parse(text: str) -> IssueForm:
    try:
        read = yaml.safe_load(text)
        labels = read.get("labels") or []
        if isinstance(labels, str):
            labels = [each.strip() for each in labels.split(",")]
        fields = tuple(_field(at, one) for at, one in enumerate(read["body"]))
        return IssueForm(
            str(read.get("name", "Issue")),
            str(read.get("description") or read.get("about") or ""),
            str(read.get("title") or ""),
            tuple(str(each) for each in labels),
            fields,
        )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise BadForm(f"this issue form cannot be shown: {error}") from error


def _field(at: int, one: Mapping[str, Any]) -> Field:
    if one["type"] not in KINDS:
        raise BadForm(f"field {at + 1} has the type {one['type']!r}; there are {', '.join(KINDS)}")
    given = one.get("attributes") or {}
    options = []
    for each in given.get("options") or []:
        if isinstance(each, Mapping):
            options.append(Option(str(each["label"]), bool(each.get("required"))))
        else:
            options.append(Option(str(each)))
    value = str(given.get("value") or "")
    if one["type"] == "dropdown" and isinstance(given.get("default"), int):
        value = options[given["default"]].label
    return Field(
        one["type"],
        str(one.get("id") or f"field-{at}"),
        str(given.get("label") or ""),
        str(given.get("description") or ""),
        str(given.get("placeholder") or ""),
        value,
        str(given.get("render") or ""),
        bool((one.get("validations") or {}).get("required")),
        bool(given.get("multiple")),
        tuple(options),
    )


def problems(form: IssueForm, answers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What is missing, by field."""
    found = {}
    for field in form.fields:
        given = [each for each in answers.get(field.id, ()) if each.strip()]
        if field.kind == "checkboxes":
            must = [option.label for option in field.options if option.required]
            if not set(must) <= set(given):
                found[field.id] = "Please tick what is required."
        elif field.required and not given:
            found[field.id] = "This field is required."
    return found


def body(form: IssueForm, answers: Mapping[str, Sequence[str]]) -> str:
    """The issue's text, exactly as GitHub writes it."""
    parts = []
    for field in form.fields:
        if field.kind != "markdown":
            parts.append(f"### {field.label}\n\n{_answer(field, answers.get(field.id, ()))}")
    return "\n\n".join(parts)


def _answer(field: Field, given: Sequence[str]) -> str:
    if field.kind == "checkboxes":
        boxes = [("x" if each.label in given else " ", each.label) for each in field.options]
        return "\n".join(f"- [{tick}] {label}" for tick, label in boxes)
    texts = [each.replace("\r\n", "\n").strip("\n") for each in given if each.strip()]
    if not texts:
        return NO_RESPONSE
    text = ", ".join(texts)
    if field.kind == "textarea" and field.render:
        longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
        fence = "`" * max(3, longest + 1)
        return f"{fence}{field.render}\n{text}\n{fence}"
    return text
