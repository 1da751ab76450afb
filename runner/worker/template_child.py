"""Renders chat templates in a process with bounded time and memory, because a template is
strangers' text and may loop. Reads a line of JSON for each conversation and prints one."""

import json
import math
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from engine.data.chat_template import BadTemplate, Rendered, rendered

SECONDS = 10  # of a processor, for one conversation
MEMORY = 1 << 30  # bytes


class Renderer:
    """Asks the process. Once it has ended, it is of no use."""

    def __init__(self, process: "subprocess.Popen[str]", template: str) -> None:
        self._process, self._template = process, template

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Any = None,
        *,
        add_generation_prompt: bool = False,
    ) -> Rendered:
        """As `engine.data.chat_template.rendered`. Raises BadTemplate."""
        assert self._process.stdin
        assert self._process.stdout
        asked = {
            "template": self._template,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise BadTemplate(_stopped(self._process.wait()))
        answer = json.loads(line)
        if "error" in answer:
            raise BadTemplate(answer["error"])
        return Rendered(answer["text"], [(begin, end) for begin, end in answer["spans"]])


def _stopped(code: int) -> str:
    """Why the process ended, by its exit code."""
    if code == -signal.SIGXCPU:
        return (
            f"the chat template took more than {SECONDS} seconds for one conversation, so it was "
            "stopped; does it loop?"
        )
    how = signal.Signals(-code).name if code < 0 else f"the exit code {code}"
    return f"what renders the chat template ended with {how}; make the template simpler"


@contextmanager
def renderer(template: str) -> Iterator[Renderer]:
    """A process that renders this template."""
    command = [sys.executable, "-m", __name__]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")
    try:
        yield Renderer(process, template)
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """Answer each line of the standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = math.ceil(used.ru_utime + used.ru_stime) + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        try:
            answer: dict[str, Any] = rendered(**cast(dict[str, Any], json.loads(line)))._asdict()
        except BadTemplate as error:
            answer = {"error": str(error)}
        except MemoryError:
            answer = {"error": f"the chat template takes more than {MEMORY >> 20} MB"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
