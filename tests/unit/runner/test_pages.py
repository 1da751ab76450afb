"""What the step `extract` makes of a web page with either library, beyond what these decide."""

import pytest

from runner.worker.texts.page_text import Unreadable, read

PROSE = "This sentence is long enough to be content, and no link is in any part of it at all."


def article(inner: str) -> str:
    """A page about something, with this in it."""
    paragraphs = [f"<p>Part {number}. {PROSE}</p>" for number in range(4)]
    return f"<nav><a href=/>Home</a></nav><h1>T</h1>{paragraphs[0]}{inner}{''.join(paragraphs[1:])}"


@pytest.fixture(params=["trafilatura", "resiliparse"])
def extractor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_content_stays_and_navigation_goes(extractor: str) -> None:
    text = read(article(""), extractor, False).text
    assert text.count(PROSE) == 4
    assert "Home" not in text


def test_markdown_has_headings_lists_code_and_emphasis_but_no_targets_of_links() -> None:
    inner = "<h2>One</h2><p>A <b>bold</b> <a href=z.html>link</a></p><ol><li>a<li>b</ol>"
    code = "<pre>def f():\n    return 1</pre>"
    page = f"<article>{article(inner + code)}</article>"
    text = read(page, "trafilatura", True).text
    for line in ("# T", "## One", "A **bold** link", "1. a", "```\ndef f():\n    return 1\n```"):
        assert line in text, line


def test_lists_right_in_the_body_are_content() -> None:
    text = read(article("<ul><li>first thing<li>second thing</ul>"), "resiliparse", False).text
    assert "first thing" in text


def test_the_title_is_the_only_first_heading_or_that_of_the_head(extractor: str) -> None:
    head = "<title>Page — Site</title>"
    assert read(f"{head}<h1>Page</h1><p>x", extractor, False).title == "Page"
    assert read(f"{head}<h1>A</h1><h1>B</h1><p>x", extractor, False).title == "Page — Site"
    assert read("<p>x", extractor, False).title is None
    assert read(f"{head}<h1><code>page</code> one</h1>x", extractor, False).title == "page one"


def test_text_without_markup_is_itself(extractor: str) -> None:
    assert read("one & two", extractor, False).text == "one & two"


@pytest.mark.parametrize("page", ["", "<p> <img src=a.png>", "<script>let x</script>"])
def test_a_page_without_words_says_so(extractor: str, page: str) -> None:
    with pytest.raises(Unreadable, match="no text"):
        read(page, extractor, False)


def test_misnested_elements_do_not_multiply() -> None:
    page = "<b><i>" * 900 + f"<p>{PROSE}" * 3
    assert len(read(page, "resiliparse", False).text) < len(page)
    with pytest.raises(Unreadable, match="no text"):
        read(page, "trafilatura", False)
