"""Reads web pages in a child, which a page may bring down: a few bytes of HTML can take a parser
hours, or all memory."""

from runner.isolation import limited
from runner.worker.texts import page_text
from runner.worker.texts.page_text import Read, Unreadable

LIMITS = limited.Limits(seconds=20.0, memory=3 << 30, answer=1 << 30)  # for one page
STOPPED = (
    f"more than {LIMITS.seconds:.0f} seconds of a processor or {LIMITS.memory >> 30} GiB of memory"
)
FAILED = "its parser failed"  # with a Python error


def read(page: str, extractor: str, markdown: bool) -> Read:
    """As `page_text.read`. Raises Unreadable also for a page that brings the child down, and
    RuntimeError if a child cannot even begin, which is no page's fault."""
    try:
        found = limited.call(
            *(page_text.read, page, extractor, markdown),
            limits=LIMITS,
            resident=True,
            expected=Unreadable,
        )
    except limited.Refused as refused:
        if refused.kind == "start":
            raise RuntimeError(f"no page can be read: {refused}") from None
        raise Unreadable(FAILED if refused.kind == "raised" else STOPPED) from None
    return Read(*found)
