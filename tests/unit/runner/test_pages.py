"""What the step `extract` keeps of a web page, rule by rule, on pages written by hand."""

import pytest

from runner.worker.texts.page_text import joined, read
from runner.worker.texts.page_tree import DEPTH, TAGS, Unreadable

PROSE = "This sentence is long enough to be content, and no link is in any part of it at all."


def text(page: str, markdown: bool = False) -> str:
    return joined(read(page.encode(), markdown).blocks)


def test_paragraphs_headings_and_lists_are_blocks_without_marks() -> None:
    page = "<h1>One</h1><p>Two  <b>bold</b>\n words</p><ul><li>a</li><li>b<ol><li>c</ol></ul>d"
    assert text(page) == "One\n\nTwo bold words\n\na\nb\nc\n\nd"


def test_markdown_has_headings_lists_and_emphasis_but_no_targets_of_links() -> None:
    page = (
        "<h2>One</h2><p>Two <b>bold</b>, <em>soft</em> <code>x_y</code> <a href=z.html>link</a>"
        "<ol start=3><li>a<ul><li>b</ul><li><p>c<p>d</ol><blockquote>said<p>done</blockquote>"
    )
    assert text(page, markdown=True) == (
        "## One\n\nTwo **bold**, *soft* `x_y` link\n\n3. a\n   - b\n4. c\n\n   d\n\n"
        "> said\n>\n> done"
    )


def test_code_keeps_its_lines_and_spaces() -> None:
    page = "<p>Run<pre>\ndef f():\n    <b>return</b> &lt;1  \n\n\nf()</pre>"
    assert text(page) == "Run\n\ndef f():\n    return <1\n\n\nf()"
    assert text(page, markdown=True) == "Run\n\n```\ndef f():\n    return <1\n\n\nf()\n```"


def test_a_table_of_data_gives_a_line_for_each_row() -> None:
    page = (
        "<table><caption>Sizes<tr><th>name<th>size<tr><td>a|b<td><p>1<p>2<tr><td>c<td></table>"
        "<p>after"
    )
    assert text(page) == "Sizes\n\nname\tsize\na|b\t1 2\nc\n\nafter"
    assert "| name | size |\n| --- | --- |\n| a\\|b | 1 2 |\n| c |  |" in text(page, markdown=True)


def test_a_table_that_arranges_a_page_gives_the_blocks_of_its_cells() -> None:
    said = "<table role=presentation><tr><td>one<td>two</table>"
    holds_code = "<table><tr><td><h2>one</h2><td><p>two</table>"
    assert text(said) == text(holds_code).replace("\n\n", "\n") == "one\ntwo"


def test_numbers_of_the_lines_of_code_are_no_text() -> None:
    page = "<table><tr><td><pre>9\n10</pre><td><pre>a = 1\nb = 2</pre></table>"
    assert text(page) == "a = 1\nb = 2"
    years = "<table><tr><td>1999 2001<td>two years</table>"
    assert text(years) == "1999 2001\ttwo years"


def test_mathematics_is_tex_where_the_page_has_it() -> None:
    annotated = (
        "<p>so <math><semantics><mi>x</mi><annotation encoding='application/x-tex'>x^2"
        "</annotation></semantics></math> is"
    )
    assert text(annotated) == "so $x^2$ is"
    assert text("<p>so <math alttext='x^3'><mi>x</mi></math>") == "so $x^3$"
    assert text("<p>so <math><mi>x</mi><mo>+</mo><mn>1</mn></math>") == "so x+1"
    assert text("<p>so <img src=1.png alt='e^{x}'> is") == "so e^{x} is"
    for less in ("<", "&lt;"):
        assert text(f"<p>so <script type='math/tex'>x{less}b</script> is") == "so $x<b$ is"


def test_what_readers_do_not_see_is_no_text() -> None:
    page = (
        "<p hidden>a</p><div aria-hidden=true>b</div><p style='color: red; display : none'>c</p>"
        "<script>'<p>d</p>'</script><style>e</style><!-- <p>f</p> --><button>g</button>"
        "<template><p>h</template><svg><text>i</text></svg><p>seen"
    )
    assert text(page) == "seen"


def test_a_main_element_is_the_content_with_its_asides_and_tables() -> None:
    for opening in ("<main>", "<div role=main>", "<article>"):
        page = (
            f"<div>menu</div>{opening}<h1>A</h1><p>{PROSE * 4}<aside>Note</aside>"
            f"<ul><li><a href=b.html>see also</a></ul></{opening[1:5].strip('>')}><div>Copyright"
        )
        assert "menu" not in text(page), opening
        assert text(page).startswith("A\n\n")
        assert text(page).count("Note") == text(page).count("see also") == 1


def test_an_empty_main_element_is_not_believed() -> None:
    assert text(f"<main><p>Loading</main><div><p>{PROSE * 3}</div>").endswith(PROSE * 3)


def test_landmarks_are_no_content() -> None:
    page = (
        "<header>Site</header><nav>Home</nav><div role=search>Find</div>"
        f"<p>{PROSE}</p><div role=contentinfo>Copyright</div><footer>Imprint</footer>"
    )
    assert text(page) == PROSE
    assert text(f"<header><h1>Title</h1></header><p>{PROSE}") == f"Title\n\n{PROSE}"


def test_outside_of_a_main_element_groups_of_links_are_navigation() -> None:
    links = "".join(f"<li><a href={n}.html>Page number {n}</a>" for n in range(5))
    assert text(f"<div><h3>More</h3><ul>{links}</ul></div><p>{PROSE}") == PROSE
    buttons = "<table><tr><td>[ <a href=a>&lt;&lt;</a> ]<td>[ Up ]<td>[<a href=b>Index of all</a>]"
    assert text(f"{buttons}</table><p>{PROSE}") == PROSE
    inside = f"<main><p>{PROSE * 4}<ul>{links}</ul></main>"
    assert "Page number 3" in text(inside)
    described = f"<ul><li><a href=1>one</a> {PROSE}<li><a href=2>two</a> {PROSE}</ul>"
    assert text(described) == f"one {PROSE}\ntwo {PROSE}"
    prose = "<div><h2>See also</h2><p><a href=1>one</a>, <a href=2>two</a></div>"
    assert text(prose + f"<p>{PROSE}") == f"See also\n\none, two\n\n{PROSE}"


def test_a_table_of_contents_of_the_page_itself_is_no_content() -> None:
    links = "".join(f"<li><a href='#s{n}'>Section number {n}</a>" for n in range(5))
    page = (
        f"<main><div><p>Contents<ul>{links}</ul></div><h2 id=s1><a href='#toc'>Section</a>"
        f"<a href='#s1'>¶</a></h2><p>{PROSE * 4} See <a href='#s2'>below</a>.</main>"
    )
    assert text(page) == f"Section\n\n{PROSE * 4} See below."


def test_footnotes_stay_where_they_are() -> None:
    page = f"<main><p>{PROSE * 4}<a href='#f1'>[1]</a><aside><p>[1] A note.</aside></main>"
    assert text(page) == f"{PROSE * 4}[1]\n\n[1] A note."


def test_line_breaks_stay_inside_a_block() -> None:
    assert text("<p>one<br>two<br><br>three&nbsp;four") == "one\ntwo\nthree four"


def test_entities_are_characters() -> None:
    assert text("<p>a &lt;b&gt; &amp;amp; &eacute;") == "a <b> &amp; é"


def test_the_title_is_the_only_first_heading_or_that_of_the_head() -> None:
    head = "<title>Page — Site</title>"
    assert read(f"{head}<h1>Page</h1>x".encode(), False).title == "Page"
    assert read(f"{head}<h1>A</h1><h1>B</h1>".encode(), False).title == "Page — Site"
    assert read(b"<p>x", False).title is None
    assert read(f"{head}<h1><code>page</code> one</h1>x".encode(), True).title == "page one"


def test_text_without_markup_is_itself() -> None:
    assert text("one & two") == "one & two"


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (b"", "no text"),
        (b"<p> <img src=a.png>", "no text"),
        (b"<script>let x</script>", "no text"),
        (b"<div>" * (DEPTH + 10) + b"x", "nested deeper than 200 elements"),
        (b"<br>" * (TAGS + 1), "more than 400,000 tags"),
        (b"<svg>" * (DEPTH + 10), "nested deeper than 200 elements"),
        (b"<b><i>" * 900 + b"<p>x" * 900, "nested deeper than 200 elements"),
    ],
)
def test_a_page_that_cannot_be_read_says_why(page: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=f"^{why}$"):
        read(page, False)


@pytest.mark.parametrize(
    ("inner", "elements"),
    [("<blockquote>", 1), ("<ul><li>", 2), ("<table><tr><td>", 4), ("<dl><dd>", 2), ("<b><p>", 2)],
)
def test_what_is_as_deep_as_may_be_is_read(inner: str, elements: int) -> None:
    page = inner * ((DEPTH - 10) // elements) + "deep"
    assert text(page, markdown=True).strip("*").endswith("deep")


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert text("<p>ok") == "ok"
    assert read(b"<p>caf\xe9", False).blocks[0].text.startswith("caf")
