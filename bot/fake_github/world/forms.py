"""Issue forms: from the YAML under `.github/ISSUE_TEMPLATE/` to fields, from answers to a body.

The body is what GitHub makes of a form: `### Label`, a blank line, the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import yaml
from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field, model_validator

from bot.fake_github.world.errors import unprocessable

NO_RESPONSE = "_No response_"


def _split(labels: object) -> object:
    return [each.strip() for each in labels.split(",")] if isinstance(labels, str) else labels or ()


def _attribute(name: str, default: object = "") -> Any:
    return Field(default, validation_alias=AliasPath("attributes", name))


Text = Annotated[str, BeforeValidator(lambda given: "" if given is None else str(given))]


class Option(BaseModel):
    label: Text
    required: bool = False

    @model_validator(mode="before")
    @classmethod
    def _label_alone(cls, given: object) -> object:
        return given if isinstance(given, Mapping) else {"label": given}


class FormField(BaseModel):
    kind: Literal["input", "textarea", "dropdown", "checkboxes", "markdown"] = Field(alias="type")
    id: Text = ""
    label: Text = _attribute("label")
    description: Text = _attribute("description")
    placeholder: Text = _attribute("placeholder")
    value: Text = _attribute("value")  # prefilled; for a markdown field, its text
    render: Text = _attribute("render")  # the language of the code fence around the answer
    multiple: bool = _attribute("multiple", False)
    options: tuple[Option, ...] = _attribute("options", ())
    default: int | None = _attribute("default", None)
    required: bool = Field(False, validation_alias=AliasPath("validations", "required"))

    def model_post_init(self, _: object) -> None:
        if self.kind == "dropdown" and self.default is not None:
            self.value = self.options[self.default].label


class IssueForm(BaseModel):
    name: Text = "Issue"
    description: Text = Field("", validation_alias=AliasChoices("description", "about"))
    title: Text = ""
    labels: Annotated[tuple[Text, ...], BeforeValidator(_split)] = ()
    fields: tuple[FormField, ...] = Field(alias="body")

    def model_post_init(self, _: object) -> None:
        for at, field in enumerate(self.fields):
            field.id = field.id or f"field-{at}"


def parse(text: str) -> IssueForm:
    try:
        return IssueForm.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, IndexError) as error:
        raise unprocessable(f"this issue form cannot be shown: {error}") from error


def problems(form: IssueForm, answers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Missing answers, by field."""
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


def _answer(field: FormField, given: Sequence[str]) -> str:
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
