"""What a rule can ask of GitHub and of the lab as it is now: `Thread` has a method for each
question, and `bot.controller.queries` answers."""

from typing import Any

Question = tuple[Any, ...]  # which method asks, and about what: `("role", "ada")`


class Unknown(Exception):
    """A rule needs to know `question` before it can say anything."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question
