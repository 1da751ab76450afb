"""Questions that a rule can ask about GitHub and about the current lab: `Thread` has a method for
each, and `bot.controller.queries` answers."""

from datetime import timedelta
from typing import Any

Question = tuple[Any, ...]  # the method and its arguments: `("role", "ada")`


class NotYet(Exception):
    """The answer cannot be known now; the rules that need it wait."""

    def __init__(self, why: str, wait: timedelta) -> None:
        super().__init__(why)
        self.wait = wait


class Unknown(Exception):
    """A rule needs the answer to `question` first."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question
