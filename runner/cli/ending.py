"""How a command ends: with what was asked for on stdout, or with a sentence on stderr and a code,
which is 0 for what was done, 1 for what failed, and 2 for bad input."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from pydantic_core import to_jsonable_python
from rich.console import Console

from runner.lib.problems import BadExperiment

DONE, FAILED, BAD_INPUT = 0, 1, 2


def stop(words: object, code: int = BAD_INPUT) -> NoReturn:
    """End with these words, in red."""
    remark(words, "red")
    sys.exit(code)


def remark(words: object, style: str = "") -> None:
    """A line on stderr, of any length: beside what was asked for."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    errors.print(str(words), style=style)


@contextmanager
def stopping(*errors: type[Exception], code: int = BAD_INPUT, words: str = "{}") -> Iterator[None]:
    """End where one of these errors is raised within, in `words`, with the error's own for `{}`."""
    try:
        yield
    except errors as error:
        stop(str(error).join(words.rsplit("{}", 1)), code)


@contextmanager
def complaining() -> Iterator[list[str]]:
    """End after the `with` body with all complaints that it gathers, and with those of a
    declaration that it reads last."""
    wrong: list[str] = []
    try:
        yield wrong
    except BadExperiment as error:
        wrong.append(str(error))
    if wrong:
        stop("\n".join(wrong))


def print_json(answer: Any) -> None:
    """Print an answer for programs: records, dataclasses, and what is built of them."""
    text = json.dumps(answer, indent=2, ensure_ascii=False, default=to_jsonable_python)
    print(text.encode(errors="backslashreplace").decode())  # as JSON has it, of a name that is odd
