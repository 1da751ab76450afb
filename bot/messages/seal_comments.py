"""What an issue from the experiment form is told. Pure."""

from bot.messages import for_programs
from bot.messages.templating import say
from runner.analysis.text_diff import text_diff
from runner.schema.record import Edit, Preregistration


def sealed(seal: Preregistration) -> str:
    """What the lab understood, and the seal."""
    return say("sealed", lambda _: for_programs.seal(seal), seal=seal)


def not_sealed(problems: tuple[str, ...]) -> str:
    """Why an issue from the form is not sealed."""
    return say("not-sealed", problems=problems)


def edited(seal: Preregistration, edit: Edit, before: str | None = None) -> str:
    """A sealed issue was edited; `before` is how it read until then."""
    known = before is not None and edit.text is not None
    diff = text_diff(before or "", edit.text or "") if known else ()
    return say("edited", seal=seal, edit=edit, diff=diff)
