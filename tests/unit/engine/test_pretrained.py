"""What is read of a public checkpoint beside its numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.data.chat_template import FILE, rendered
from engine.training.architectures import CannotExchange
from engine.training.pretrained import MAX_TEMPLATE, read_chat_template

ASKED = [{"role": "user", "content": "Hello"}]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content + eos_token }}{% endfor %}"
SPECIAL = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"}


def folder(place: Path, template: str | None, **fields: Any) -> Path:
    (place / "tokenizer_config.json").write_text(json.dumps(fields))
    if template is not None:
        (place / FILE).write_text(template)
    return place


@pytest.mark.parametrize(
    "of",
    [
        {"template": TEMPLATE},
        {"template": None, "chat_template": TEMPLATE},
        {"template": TEMPLATE, "chat_template": "an older one"},
        {"template": None, "chat_template": [{"name": "tool_use", "template": "no"},
                                             {"name": "default", "template": TEMPLATE}]},
    ],
)  # fmt: skip
def test_a_chat_template_is_read_from_where_transformers_has_it(
    of: dict[str, Any], tmp_path: Path
) -> None:
    found = read_chat_template(folder(tmp_path, **of, **SPECIAL))
    assert found
    assert rendered(found, ASKED).text == "<s>Hello</s>"


@pytest.mark.parametrize("of", [None, 5, [], [{"name": "rag", "template": "a"}], ["a"]])
def test_a_folder_may_have_none(of: object, tmp_path: Path) -> None:
    assert read_chat_template(tmp_path) is None
    assert read_chat_template(folder(tmp_path, None, chat_template=of)) is None


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for", "line 1 of the chat template is not Jinja"),
        ("x" * (MAX_TEMPLATE + 1), "has more than 200,000 characters"),
    ],
)
def test_a_chat_template_that_cannot_be_is_refused(
    template: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(CannotExchange, match=words):
        read_chat_template(folder(tmp_path, template))


@pytest.mark.parametrize("text", ["x" * 201, "\ud800"])
def test_a_special_token_that_cannot_be_written_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(CannotExchange, match=r"`bos_token` in .* not Unicode; write the token's"):
        read_chat_template(folder(tmp_path, "{{ bos_token }}", bos_token=text))
