"""The items of a task: what a benchmark asks a model. A file has one JSON object a line, all of one
kind, which its keys tell:

    {"context": "The sky is", "choices": [" blue", " green"], "answer": 0}   a choice
    {"prompt": "2 + 3 =", "answer": "5"}                                     an answer to write
    {"text": "Any text."}                                                    a text to predict
    {"prompt": "def f(x):\\n", "canonical_solution": "    return x\\n",         a function to write
     "test": "def check(candidate):\\n    assert candidate(1) == 1\\n", "entry_point": "f"}

Texts, choices and answers follow their context without a space in between."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from engine.config.schema import refusal
from runner.lib import bounds, untrusted_files

MAX_FILE = 16 << 20  # bytes
MAX_ITEMS = 100_000
MAX_LINE = 1 << 20  # bytes

Kind = Literal["choice", "answer", "text", "function"]
Text = Annotated[str, Field(min_length=1, max_length=200_000)]


class BadTask(Exception):
    """A task cannot be used; the message says why and what to do, `field` where it is declared."""

    def __init__(self, message: str, field: str = "tasks") -> None:
        super().__init__(message)
        self.field = field


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _different(choices: list[str]) -> list[str]:
    if len(set(choices)) < len(choices):
        raise refusal("two choices are the same text, so that no answer is right; take one out")
    return choices


class Choice(_Item):
    """Which of the choices follows the context?"""

    context: Text
    choices: Annotated[list[Text], Field(min_length=2, max_length=100), AfterValidator(_different)]
    answer: int  # the number of the right choice, from 0

    @field_validator("answer")
    @classmethod
    def _is_a_choice(cls, answer: int, info: ValidationInfo) -> int:
        choices = info.data.get("choices")
        if choices and not 0 <= answer < len(choices):
            raise refusal(
                "{answer} is the number of none of the {count} choices; write 0 for the first of "
                "them, {last} for the last",
                answer=answer,
                count=len(choices),
                last=len(choices) - 1,
            )
        return answer


class Answer(_Item):
    """What does the model write after the prompt, up to the first of the stop strings?"""

    prompt: Text
    answer: Text
    stop: Annotated[list[Text], Field(min_length=1, max_length=20)] = ["\n"]


class Whole(_Item):
    """How likely is the text?"""

    text: Text


class Function(_Item):
    """What is the rest of this function? In the form of HumanEval: `test` defines
    `check(candidate)`, which raises if the function `candidate` is wrong."""

    task_id: Annotated[str, Field(max_length=200)] | None = None
    prompt: Text  # the beginning of a Python module, up to the function's body
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]  # its name
    canonical_solution: Text  # the body
    test: Text


Item = Choice | Answer | Whole | Function
KINDS: dict[Kind, type[_Item]] = {
    "choice": Choice,
    "answer": Answer,
    "text": Whole,
    "function": Function,
}


def read(path: Path) -> bytes:
    """A file of items. Raises BadTask."""
    try:
        found = untrusted_files.read(path, MAX_FILE)
    except untrusted_files.Refused as error:
        raise BadTask(f"{error}; write a file of at most {MAX_FILE:,} bytes") from error
    if found is None:
        raise BadTask("there is no such file in the experiment's folder; add it")
    return found


def is_path_below(name: str) -> bool:
    """Whether this is a relative path that does not lead upwards."""
    path = PurePosixPath(name)
    return not (path.is_absolute() or ".." in path.parts or "\0" in name)


def items_of(data: bytes, file: str) -> tuple[Kind, list[Any]]:
    """The items of a file's content, and their kind. Raises BadTask for the first line that cannot
    be read; `file` is its name in the message."""
    kind: Kind | None = None
    found: list[Any] = []
    for number, line in _lines(data):
        where = f"{file}, line {number}"
        if len(found) == MAX_ITEMS:
            raise BadTask(f"{where}: it has more than {MAX_ITEMS:,} items; take some out")
        try:
            value = bounds.plain(line, MAX_LINE)
        except ValueError as error:
            raise BadTask(f"{where}: this is no JSON ({error}); write one object a line") from error
        this = _kind(value)
        if this is None:
            raise BadTask(
                f"{where}: an item is an object with `context`, `choices` and `answer`, with "
                "`prompt` and `answer`, with `text`, or with `prompt`, `entry_point`, "
                "`canonical_solution` and `test`; write one of them"
            )
        if kind not in (None, this):
            raise BadTask(
                f"{where}: this is an item of another kind than those before; make two files"
            )
        kind = this
        try:
            found.append(KINDS[kind].model_validate(value))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise BadTask(f"{where}, {field}: {first['msg']}") from error
    if kind is None:
        raise BadTask(f"{file} has no items; write one object a line")
    return kind, found


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield number, line


def _kind(value: object) -> Kind | None:
    keys = value.keys() if isinstance(value, dict) else set()
    if "choices" in keys:
        return "choice"
    if "test" in keys:
        return "function"
    if "prompt" in keys:
        return "answer"
    return "text" if "text" in keys else None
