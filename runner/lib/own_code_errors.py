"""Attributes errors: what an own function raises is reported with its name. Light: a step's process
imports it before its threads are counted."""

from collections.abc import Iterator
from contextlib import contextmanager


class BadOwnCode(Exception):
    """An own function raised or returned something invalid; the message says which, what and, if
    possible, what to do."""


@contextmanager
def blamed(function: str, doing: str = "") -> Iterator[None]:
    """Attribute exceptions in the `with` body to `function` (module:function), while `doing`."""
    try:
        yield
    except BadOwnCode:
        raise
    except Exception as error:
        where = f"{function}, {doing}" if doing else function
        raise BadOwnCode(f"{where}: {type(error).__name__}: {error}") from error
