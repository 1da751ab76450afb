"""The text of a web page by other libraries: `pip install trafilatura==2.3.1 resiliparse`. The
lab's step `extract` has its own rules for what to keep, and the parser of resiliparse."""

import trafilatura
from resiliparse.extract.html2text import extract_plain_text


def by_trafilatura(page: str) -> str | None:
    """The main content by trafilatura with its defaults; None if it finds nothing."""
    return trafilatura.extract(page) or None


def main_content(page: str) -> str | None:
    """The main content by resiliparse; None if it finds nothing."""
    return extract_plain_text(page, main_content=True) or None


def whole_page(page: str) -> str | None:
    """All text of the page by resiliparse, with navigation and footers."""
    return extract_plain_text(page, main_content=False) or None
