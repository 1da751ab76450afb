"""Reads web pages in a child, which a page may bring down: a few bytes of HTML can take a parser
hours, or all memory. The limits on bytes, tags and depth (`page_tree`) come first and do not depend
on the machine; those on time and memory are for what they let through."""

import sys

from runner.isolation import limited
from runner.worker.texts import page_text
from runner.worker.texts.page_text import Block, Read
from runner.worker.texts.page_tree import DEPTH, Unreadable

LIMITS = limited.Limits(seconds=20.0, memory=3 << 30, answer=1 << 30)  # for one page
STOPPED = (
    f"more than {LIMITS.seconds:.0f} seconds of a processor or {LIMITS.memory >> 30} GiB of memory"
)
FAILED = "its parser failed"  # with a Python error


def read(page: bytes, markdown: bool) -> Read:
    """As `page_text.read`. Raises Unreadable also for a page that brings the child down, and
    RuntimeError if a child cannot even begin, which is no page's fault."""
    try:
        title, blocks = limited.call(
            *(page_text.read, page, markdown),
            limits=LIMITS,
            prepare=_allow_depth,
            resident=True,
            expected=Unreadable,
        )
    except limited.Refused as refused:
        if refused.kind == "start":
            raise RuntimeError(f"no page can be read: {refused}") from None
        raise Unreadable(FAILED if refused.kind == "raised" else STOPPED) from None
    return Read(title, [Block(*block) for block in blocks])


def _allow_depth() -> None:
    sys.setrecursionlimit(10 * DEPTH)
