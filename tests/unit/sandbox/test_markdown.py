"""Markdown as the pages show it: GitHub's flavour, and harmless whatever a stranger writes."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.fake_github.pages.markdown import render

PAGE = "/regatta-lab/lab"


def html(text: str) -> str:
    return render(text, PAGE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("| a | b |\n|--|--:|\n| 1 | 2 |", '<td align="right">2</td>'),
        ("~~gone~~", "<s>gone</s>"),
        ("one\ntwo", "one<br>\ntwo"),
        (
            "- [x] done",
            '<li class="task"><input type="checkbox" disabled="" checked="" aria-label="done">',
        ),
        ("- [ ] to do", '<li class="task"><input type="checkbox" disabled="" aria-label="to do">'),
        ("ask @ada-1", '<span class="mention">@ada-1</span>'),
        ("see #12.", f'<a href="{PAGE}/issues/12" class="reference"'),
        ("https://example.org/a?b=1.", '<a href="https://example.org/a?b=1"'),
        ("at " + "a" * 40, "<code>aaaaaaa</code>"),
        ("```yaml\na: 1\n```", '<code class="language-yaml">a: 1'),
        ("<details><summary>More</summary>\n\n**bold**\n\n</details>", "<strong>bold</strong>"),
        ("<!-- marker -->\nseen", "<p>seen</p>"),
        (f"![curves]({PAGE}/raw/abc/x.png)", f'<img src="{PAGE}/raw/abc/x.png" alt="curves"'),
        ("<kbd>Ctrl</kbd>", "<kbd>Ctrl</kbd>"),
    ],
)
def test_githubs_flavour_is_rendered(text: str, expected: str) -> None:
    assert expected in html(text)


def test_code_keeps_its_words() -> None:
    assert (
        html("`@ada #1 https://example.org`") == "<p><code>@ada #1 https://example.org</code></p>\n"
    )
    assert "@x.org" in html("me@x.org")
    assert "mention" not in html("me@x.org")


HOSTILE = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<img src=x onerror=alert(1)>",
    "<img src='javascript:alert(1)'>",
    "[x](javascript:alert(1))",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='java\tscript:alert(1)'>x</a>",
    "<a href=' &#106;avascript:alert(1)'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<a href='vbscript:x'>x</a>",
    "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "<math><mtext><img src=x onerror=alert(1)></mtext></math>",
    "<style>body{display:none}</style>",
    "<p style='position:fixed;inset:0'>x</p>",
    "<iframe src='https://evil.example'></iframe>",
    "<form action='/'><input name=persona><button>x</button></form>",
    "<input type=text autofocus onfocus=alert(1)>",
    "<details ontoggle=alert(1) open>x</details>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<div class='box comment' id='live' data-live='/x'>x</div>",
    "</div></div></article><h1>outside</h1>",
    "<table><tr><td><div><b>never closed",
    "<<script>script>alert(1)<</script>/script>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<template><script>alert(1)</script></template>",
    '<img alt="x" src="https://evil.example/tracker.png">',
    "<a href='//evil.example' onclick=alert(1)>x</a>",
    "<script",
    "<img src=x onerror=alert(1)//",
    "<xmp><script>alert(1)</script></xmp>",
]


class _Reader(HTMLParser):
    """What a browser would find: tags, their attributes, and whether all are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.unbalanced = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("br", "hr", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced = True


def assert_harmless(made: str) -> None:
    reader = _Reader()
    reader.feed(made)
    reader.close()
    assert not reader.unbalanced
    assert reader.open == []
    for tag, attributes in reader.tags:
        assert tag not in ("script", "style", "iframe", "svg", "math", "form", "base", "meta")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("style", "id", "name", "srcdoc", "formaction", "data-live")
            if name in ("href", "src"):
                address = re.sub(r"[\x00-\x20]", "", value or "").lower()
                assert not re.match(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:", address)
            if name == "src":
                assert "evil.example" not in (value or "")
            if name == "class":
                assert "box" not in (value or "")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_does_nothing(text: str) -> None:
    assert_harmless(html(text))
    assert_harmless(html(f"before {text} after\n\n{text}"))


@given(
    st.lists(
        st.sampled_from(HOSTILE) | st.sampled_from(list("<>/='\"&;#`* \n\t")) | st.text(max_size=5)
    )
)
def test_no_mixture_of_hostile_pieces_does_anything(pieces: list[str]) -> None:
    assert_harmless(html("".join(pieces)))


def test_an_outside_picture_becomes_a_link() -> None:
    made = html("![plot](https://evil.example/p.png)")
    assert "<img" not in made
    assert '<a href="https://evil.example/p.png"' in made
    assert "<img" in html("![plot](http://127.0.0.1:8001/p.png)")
