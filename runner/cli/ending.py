"""How a command ends: with its output on stdout, or with an error on stderr and an exit code: 0
done, 1 failed, 2 bad input."""

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
    """End with this message, in red."""
    remark(words, "red")
    sys.exit(code)


def remark(words: object, style: str = "") -> None:
    """Write a line to stderr, of any length."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    errors.print(str(words), style=style)


@contextmanager
def stopping(*errors: type[Exception], code: int = BAD_INPUT, words: str = "{}") -> Iterator[None]:
    """End the command if the `with` body raises one of these errors, with the message `words`, in
    which `{}` is the error's own."""
    try:
        yield
    except errors as error:
        stop(str(error).join(words.rsplit("{}", 1)), code)


@contextmanager
def complaining() -> Iterator[list[str]]:
    """End after the `with` body with all collected problems, and with those of a declaration that
    it reads last. Those alone are raised."""
    wrong: list[str] = []
    try:
        yield wrong
    except BadExperiment as error:
        if not wrong:
            raise
        wrong.append(str(error))
    if wrong:
        stop("\n".join(wrong))


def tell(words: str, as_json: bool, **answer: Any) -> None:
    """Print what a command did: `words`, or the `answer` as JSON."""
    if as_json:
        print_json(answer)
    else:
        print(words)


def print_json(answer: Any) -> None:
    """Print JSON: records, dataclasses, and what is built of them."""
    text = json.dumps(answer, indent=2, ensure_ascii=False, default=to_jsonable_python)
    print(text.encode(errors="backslashreplace").decode())  # odd names as JSON escapes them
