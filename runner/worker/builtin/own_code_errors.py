"""Whose fault it was: what goes wrong in a function of the experiment's own is said with its name.
Light: a step's process imports it before its threads are counted."""

from collections.abc import Iterator
from contextlib import contextmanager


class BadOwnCode(Exception):
    """A function of the experiment's own raised or gave what it should not; the message says
    which, what and, where it can be said, what to do."""


@contextmanager
def blamed(function: str, doing: str = "") -> Iterator[None]:
    """Whatever is raised in here was raised by `function` (module:function), `doing` that."""
    try:
        yield
    except BadOwnCode:
        raise
    except Exception as error:
        where = f"{function}, {doing}" if doing else function
        raise BadOwnCode(f"{where}: {type(error).__name__}: {error}") from error
