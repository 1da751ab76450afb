"""Preview images for links to a page: 1,200 × 630 pixels, as PNG. Pure.

Each page defines its own. An image is only found by its whole URL, so there are none if the site's
URL is unknown. Drawing costs mostly a tenth of a millisecond per letter, so an image says little:
the question, and the result. It is drawn again exactly when these change.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import vl_convert

from bot.site.base.files import File
from bot.site.pages.templating import HERE, Look
from runner.analysis.verdicts import ArmSummary

WIDTH, HEIGHT = 1200, 630
EDGE = 64  # pixels of margin left and right
TITLE = 56  # font size in pixels
LINES = 3  # of a title
ROWS = 5  # of an image
TEMPLATE = "preview.svg"
# Estimated widths of letters, slightly more than those of Liberation Sans Bold. vl-convert includes
# that font, so images are equal on every machine.
NARROW, WIDE = frozenset("iljtfrI.,:;'’!|()[]{} -"), frozenset("mwMWO@%—")


@dataclass(frozen=True)
class Bar:
    """A figure with its interval and, for a prediction, the expected set: percent of a scale."""

    at: float
    low: float
    high: float
    expected: tuple[float, float] | None = None


@dataclass(frozen=True)
class Line:
    """One line of an image."""

    words: str
    figure: str
    outcome: str = ""  # of a prediction
    bar: Bar | None = None


@dataclass(frozen=True)
class Preview:
    """The content of an image, and its text alternative."""

    page: str  # below the site's folder, without `.html`
    kind: str
    title: str
    description: str
    lines: tuple[Line, ...] = ()
    shares: tuple[tuple[str, int], ...] = ()  # how many predictions had which verdict
    foot: str = ""

    @property
    def path(self) -> str:
        """The path of the image."""
        return f"previews/{self.page}.png"

    def files(self, look: Look) -> Iterator[File]:
        """The image; nothing if the site's URL is unknown, because no page could link to it."""
        if not look.pages.globals["address"]:
            return
        lab = str(look.pages.globals["lab"])
        made = hashlib.sha256(f"{_edition()} {lab!r} {self!r}".encode("utf-8", "replace"))
        yield File(self.path, partial(draw, self, look), made.hexdigest())


@cache
def _edition() -> str:
    # Not the digest of the whole site, which changes with every page; images are expensive.
    told = hashlib.sha256(version("vl-convert-python").encode())
    for path in (Path(__file__), HERE / "templates" / TEMPLATE):
        told.update(path.read_bytes())
    return told.hexdigest()


def draw(preview: Preview, look: Look) -> bytes:
    """The image as PNG."""
    svg = look.pages.get_template(TEMPLATE).render(
        one=preview,
        title=wrapped(preview.title, TITLE, WIDTH - 2 * EDGE, LINES),
        cut=cut,
        width=width,
        edge=EDGE,
    )
    return vl_convert.svg_to_png(svg)


def spread(rows: Sequence[tuple[str, ArmSummary]]) -> tuple[Line, ...]:
    """The first rows, with their figures on a common scale."""
    shown = rows[:ROWS]
    low = min((one.band[0] for _, one in shown), default=0.0)
    wide = max((one.band[1] for _, one in shown), default=0.0) - low or 1.0

    def bar(one: ArmSummary) -> Bar:
        at, first, last = (round((of - low) / wide * 100, 2) for of in (one.middle, *one.band))
        return Bar(at, first, last)

    return tuple(Line(name, str(one), bar=bar(one)) for name, one in shown)


# ── Words that fit ───────────────────────────────────────────────────────────────────────────


def width(words: str) -> float:
    """The maximum width of a text, in ems."""
    return sum(map(_width, words))


def _width(letter: str) -> float:
    if letter in NARROW:
        return 0.36
    if letter in WIDE or ord(letter) > 0x2E7F:
        return 0.95
    return 0.74 if letter.isupper() else 0.61


def cut(words: str, size: float, room: float) -> str:
    """The text, or as many of its letters as fit, and `…`."""
    words = " ".join("".join(one if one.isprintable() else " " for one in words).split())
    if width(words) * size <= room:
        return words
    while words and width(words + "…") * size > room:
        words = words[:-1]
    whole = words.rpartition(" ")[0]
    return (whole if len(whole) > len(words) / 2 else words).rstrip(" ,;:") + "…"


def wrapped(words: str, size: float, room: float, most: int) -> list[str]:
    """The text on at most `most` lines; the rest is cut off."""
    lines: list[str] = []
    left = words.split()
    while left and len(lines) < most - 1:
        line = left.pop(0)
        while left and width(f"{line} {left[0]}") * size <= room:
            line += f" {left.pop(0)}"
        lines.append(cut(line, size, room))
    return lines + ([cut(" ".join(left), size, room)] if left else [])
