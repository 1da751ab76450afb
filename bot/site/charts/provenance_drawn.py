"""A picture of what something was made from: boxes in columns, each to the right of its inputs.
Pure. The page has the same as a list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from bot.site.facts import outputs
from bot.site.facts.entries import Entry
from runner.schema import record, step_graph

WIDE, HIGH, ACROSS, DOWN = 150, 44, 40, 14
MAX_BOXES = 60  # more would be unreadable
LETTERS = 21  # of a box's text


@dataclass(frozen=True)
class Node:
    """A box: its text and its inputs."""

    name: str
    words: str
    takes: tuple[str, ...] = ()
    here: bool = False  # the page's own subject
    page: str | None = None  # of its output


def of_run(entry: Entry, run: record.Run) -> dict[str, Node]:
    """The step that trained a run, with everything before and after it, in order; empty for old
    plans without steps."""
    steps, trained = entry.plan.steps, entry.plan.trained().get((run.arm, run.seed))
    if trained is None:
        return {}
    needs = {name: [n for n in step.needs if n in steps] for name, step in steps.items()}
    order, before, after = step_graph.order(needs), {trained}, {trained}
    for name in reversed(order):
        if name in before:
            before.update(needs[name])
    for name in order:
        if not after.isdisjoint(needs[name]):
            after.add(name)
    shown = before | after
    pages = outputs.pages_of(entry, shown)
    return {
        name: Node(
            name,
            steps[name].do,
            tuple(other for other in needs[name] if other in shown),
            here=name == trained,
            page=pages.get(name),
        )
        for name in order
        if name in shown
    }


def drawing(nodes: Mapping[str, Node], root: str = "") -> Markup:
    """The picture, with links from a page with this root; empty for too many boxes or fewer than
    two. The list beside it has the links for the keyboard."""
    if not 2 <= len(nodes) <= MAX_BOXES:
        return Markup("")
    column: dict[str, int] = {}
    for name, node in nodes.items():
        column[name] = 1 + max((column[other] for other in node.takes), default=-1)
    columns: list[list[str]] = [[] for _ in range(max(column.values()) + 1)]
    for name, at in column.items():
        columns[at].append(name)
    high = max(len(these) for these in columns) * (HIGH + DOWN) - DOWN
    wide = len(columns) * (WIDE + ACROSS) - ACROSS
    places = _places(columns, high)
    # Plain strings, because there are thousands of pictures; everything in them except names is our
    # own.
    parts = [
        f'<svg class="graph" viewBox="-2 -2 {wide + 4} {high + 4}" width="{wide + 4}"'
        f' height="{high + 4}" aria-hidden="true">'
    ]
    for name, node in nodes.items():
        x, y = places[name][0], places[name][1] + HIGH / 2
        for other in node.takes:
            left, up = places[other][0] + WIDE, places[other][1] + HIGH / 2
            bend = max(ACROSS / 2, (x - left) / 2)
            parts.append(
                f'<path d="M{left} {up:.1f}C{left + bend:.1f} {up:.1f} {x - bend:.1f} {y:.1f}'
                f' {x} {y:.1f}"/>'
            )
    for name, node in nodes.items():
        x, y = places[name]
        if node.page:
            parts.append(f'<a href="{escape(root + node.page)}" tabindex="-1">')
        parts.append(
            f'<g class="{"here" if node.here else ""}">'
            f'<rect x="{x}" y="{y:.1f}" width="{WIDE}" height="{HIGH}" rx="5"/>'
            f'<text x="{x + 9}" y="{y + 18:.1f}">{escape(_cut(name))}</text>'
            f'<text x="{x + 9}" y="{y + 34:.1f}" class="quiet">{escape(_cut(node.words))}</text>'
            "</g>"
        )
        if node.page:
            parts.append("</a>")
    return Markup("".join([*parts, "</svg>"]))


def _places(columns: Sequence[Sequence[str]], high: float) -> dict[str, tuple[int, float]]:
    places = {}
    for number, these in enumerate(columns):
        top = (high - len(these) * (HIGH + DOWN) + DOWN) / 2
        for row, name in enumerate(these):
            places[name] = (number * (WIDE + ACROSS), top + row * (HIGH + DOWN))
    return places


def _cut(words: str) -> str:
    return words if len(words) <= LETTERS else words[: LETTERS - 1] + "…"
