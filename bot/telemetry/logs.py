"""Logs: one JSON object per line, with the deliveries it is about.

A message may quote strangers (a title, an error of GitHub about their text). So everything is
escaped: a line is printable ASCII, and no message can start a second line. `about` names the
current subject; every line that is logged inside it carries that.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Literal

MOST_MESSAGE = 2_000  # characters
MOST_TRACE = 8_000

Form = Literal["json", "text"]
_about: ContextVar[Mapping[str, object]] = ContextVar("about", default={})  # noqa: B039


@contextmanager
def about(**facts: object) -> Iterator[None]:
    """Every line that is logged inside carries `facts`, such as `delivery="…"` or `thread=12`."""
    token = _about.set({**_about.get(), **facts})
    try:
        yield
    finally:
        _about.reset(token)


class JsonLines(logging.Formatter):
    """A record as one line of JSON: at, level, logger, message, subject, error."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        """`redact` removes secrets from a text."""
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, object] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._words(record.getMessage(), MOST_MESSAGE),
            **_about.get(),
        }
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            told["error"] = self._words(trace, MOST_TRACE)
        return _printable(json.dumps(told, default=str))

    def _words(self, text: str, most: int) -> str:
        text = self._redact(text)
        # The end of a trace says what happened.
        return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


class TextLines(JsonLines):
    """The same for a terminal: time, level, message; traces keep their lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and those of its trace."""
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        facts = "".join(f" {name}={escaped(str(value))}" for name, value in _about.get().items())
        words = escaped(self._words(record.getMessage(), MOST_MESSAGE))
        line = f"{at} {record.levelname.lower()} {words}{facts}"
        if not record.exc_info:
            return line
        trace = self._words(self.formatException(record.exc_info), MOST_TRACE)
        return "\n".join([line, *("  " + escaped(each) for each in trace.split("\n"))])


def set_up(
    form: Form, *, redact: Callable[[str], str] = str, stream: IO[str] | None = None
) -> None:
    """Log to standard error from now on, in this form, also for servers and libraries."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(redact) if form == "json" else TextLines(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("regatta").setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # they have handlers of their own
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def escaped(text: str) -> str:
    """`text` on one line of printable ASCII; everything else as `\\n`, `\\u202e`."""
    return _printable(json.dumps(text)[1:-1]).replace('\\"', '"')


def _printable(ascii_json: str) -> str:
    return ascii_json.replace("\x7f", "\\u007f")  # which JSON does not escape
