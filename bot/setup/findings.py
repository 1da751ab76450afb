"""What a check of `regatta doctor` found, and how a check says so."""

import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bot.github import Later, Refused
from bot.setup.settings import Unset
from runner.isolation import bubblewrap
from runner.scheduler.cluster import BadCluster
from runner.store.store import StoreError


@dataclass(frozen=True)
class Finding:
    """What a check found: fine or not, in a sentence; and what to do if not."""

    ok: bool
    words: str
    mend: str = ""


class Wrong(Exception):
    """What is not as it should be, in a sentence, and how to mend it."""


def need(fine: object, words: str, mend: str) -> None:
    """Go on where it is fine. Raises Wrong."""
    if not fine:
        raise Wrong(words, mend)


@contextmanager
def answering(words: str, mend: str) -> Iterator[None]:
    """What fails within is wrong in these `words`, with why for `{}`. Raises Wrong."""
    try:
        yield
    except (Refused, Later, Unset, BadCluster, StoreError, OSError, httpx.HTTPError) as error:
        # What httpx says of a header may quote a token.
        why = type(error).__name__ if isinstance(error, httpx.HTTPError) else str(error)
        raise Wrong(words.replace("{}", why), mend) from error


def private(path: Path, others: int, move: str) -> None:
    """Go on where neither own code nor `others` of this machine, as a mode, read it. Raises Wrong,
    with `move` to say where it should lie."""
    words = f"code of experiments can read {path}, because it is among programs and libraries."
    need(not bubblewrap.shows(path), words, move)
    mode = stat.S_IMODE(path.stat().st_mode)
    words = f"others on this machine can read {path} (mode {mode:04o})."
    need(not mode & others, words, f"`chmod {mode & ~others:o} {path}`")


def lines(found: Mapping[str, Finding]) -> Iterator[str]:
    """The findings for people; what is to be mended stands below its line."""
    width = max(map(len, found), default=0)
    for name, finding in found.items():
        yield f"{'✓' if finding.ok else '✗'} {name:<{width}}  {finding.words}"
        if finding.mend:
            yield f"  {'':<{width}}  → {finding.mend}"
