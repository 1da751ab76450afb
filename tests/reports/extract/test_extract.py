"""Pages that users of other extractors reported, by both libraries of the step `extract`."""

import pytest

from runner.worker.texts.page_text import read

PROSE = [
    f"Part {number} tells how the ferry to the island left at {number + 5} and came back at night, "
    "which the clerk of the harbour wrote down in the book of the year."
    for number in range(8)
]
TEXT = "".join(f"<p>{part}</p>" for part in PROSE)
HEAD = "<!doctype html><html><head><title>Page</title></head>"


def around(inner: str) -> str:
    """A page with this in the middle of its article."""
    return f"{HEAD}<body><main><article><h1>Island</h1>{TEXT}{inner}{TEXT}</article></main></body>"


ROWS = "<tr><td rowspan=2>old ship<td>seven<td>nine</tr><tr><td>eight<td>ten</tr>"

# {report: (page, what its text has, what it has not)}
CASES = {
    # what a script reveals
    "vercel/next.js#76651": (
        f"{HEAD}<body><h1>Island</h1><!--$?--><template id=B:0></template><p>Loading…</p>"
        f"<div hidden id=S:0>{TEXT}</div><script>$RC('B:0','S:0')</script>",
        PROSE,
        [],
    ),
    "vercel/next.js#73906": (
        f"{HEAD}<body><main><h1>Island</h1><div style='visibility:hidden'>{TEXT}</div></main>",
        PROSE,
        [],
    ),
    "zuplo/zudoku#2806": (
        f"{HEAD}<body style='display:none'><h1>Island</h1>{TEXT}<script>show()</script>",
        PROSE,
        [],
    ),
    "modelcontextprotocol/servers#3878": (
        f"{HEAD}<body><h1>Island</h1><my-page><template shadowrootmode=open>{TEXT}</template>"
        "</my-page>",
        PROSE,
        [],
    ),
    "wikimedia/wikipedia-preview#148": (
        around(
            "<p style='color: red'>The harbour <span style='display: none'>secret</span> is old."
        ),
        ["The harbour"],
        [],
    ),
    # ruby
    "mozilla/readability#575": (
        around(
            "<p>駅の<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rp>(</rp><rt>じ</rt><rp>)</rp></ruby>を読む人が港にいる。</p>"
        ),
        ["駅の漢字を読む人が港にいる。"],
        ["かん"],
    ),
    "xberg-io/html-to-markdown#43": (
        around("<p>駅の<ruby>漢字<rt>かんじ</ruby>を読む人が港にいる。</p>"),
        ["駅の漢字を読む人が港にいる。"],
        ["かんじ"],
    ),
    # code
    "11ty/eleventy-plugin-syntaxhighlight#5": (
        around("<pre><code><div class=line>one()</div><div class=line>  two()</div></code></pre>"),
        ["one()\n  two()"],
        [],
    ),
    "thomastuts/article-extractor#7": (
        around("<pre><code>def f():\n    return 1\n</code></pre>"),
        ["def f():\n    return 1"],
        [],
    ),
    "odoo/odoo#248391": (
        around("<pre>first line<br>second line</pre>"),
        ["first line\nsecond line"],
        [],
    ),
    # tables and lists
    "adbar/trafilatura#599": (around(f"<table>{ROWS}</table>"), ["old ship", "eight"], []),
    "adbar/trafilatura#531": (
        around(
            "<table><tr><th>day<th>hours</tr><tr><td>Monday<td><ul><li>10 to 8</ul></tr></table>"
        ),
        ["Monday", "10 to 8"],
        [],
    ),
    "adbar/trafilatura#233": (
        f"{HEAD}<body><h1>Island</h1>{TEXT}<ul><li>one thing<li>other thing</ul>{TEXT}",
        [*PROSE, "one thing", "other thing"],
        [],
    ),
    "adbar/trafilatura#10": (
        around("<ol><li>Call the ferry by its name<li>Wait at the stair of the harbour</ol>"),
        ["Call the ferry by its name", "Wait at the stair"],
        [],
    ),
    "adbar/trafilatura#431": (
        around("<ul><li><span tabindex=0>You have the right to know the hours</span></li></ul>"),
        ["You have the right to know the hours"],
        [],
    ),
    # lines
    "bitextor/warc2text#1": (
        around("<p>One sentence that the source\nbreaks in two lines, for no reason.</p>"),
        ["One sentence that the source breaks in two lines, for no reason."],
        [],
    ),
    "html-to-text/node-html-to-text#71": (
        around("<div>The first of two blocks here.</div><div>The second of two blocks here.</div>"),
        ["blocks here.\n"],
        ["here.The"],
    ),
}


# What trafilatura leaves out on purpose; for such pages a declaration asks for resiliparse.
BY_RESILIPARSE = ("adbar/trafilatura#233", "html-to-text/node-html-to-text#71")


@pytest.mark.parametrize("extractor", ["trafilatura", "resiliparse"])
@pytest.mark.parametrize("report", CASES)
def test_a_page_has_what_a_browser_would_show(report: str, extractor: str) -> None:
    page, there, gone = CASES[report]
    if report in BY_RESILIPARSE:
        extractor = "resiliparse"
    text = read(page, extractor, markdown=False).text
    assert [part for part in there if part not in text] == []
    assert [part for part in gone if part in text] == []


@pytest.mark.parametrize("extractor", ["trafilatura", "resiliparse"])
def test_the_cells_below_a_rowspan_stay_in_their_columns(extractor: str) -> None:
    text = read(around(f"<table>{ROWS}</table>"), extractor, markdown=False).text
    lines = [line for line in text.splitlines() if "eight" in line or "seven" in line]
    first, second = (line.replace("|", "\t").replace("\t\t", "\t").rstrip() for line in lines)
    cells = [[cell.strip() for cell in line.split("\t")] for line in (first, second)]
    assert cells[0].index("seven") == cells[1].index("eight")
