"""People's pages, and the list of them: `people.html`, `people/<id>.html`. Agents have the same."""

from collections.abc import Iterator, Sequence

from bot.site.base.files import File, made_from
from bot.site.base.rows import SHOWN
from bot.site.facts.lab import Lab
from bot.site.facts.people import Member
from bot.site.pages.forecast_page import reliability
from bot.site.pages.templating import Look


def files(every: Sequence[Member], facts: Lab, look: Look) -> Iterator[File]:
    """A page for each, and the list."""
    for one in every:
        yield look.page(
            one.path,
            "person.html",
            made_from(look.told, *_told(one, facts)),
            one=one,
            shown=SHOWN,
            facts=facts,
            reliability=reliability,
        )
    told = [part for one in every for part in _told(one, facts)]
    yield look.page("people.html", "people.html", made_from(look.told, *told), every=every)


def _told(one: Member, facts: Lab) -> Iterator[str]:
    """What their page shows, as far as it may change."""
    yield f"{one.id} {one.login}"
    yield from (seal.seal for seal in one.questions)
    for told in one.forecasts:
        yield f"{told.entry.execution.id} {told.entry.told} {told.not_counted}"
    for row in one.rows[:SHOWN]:
        yield f"{row.entry.execution.id} {row.arm} {row.place} {row.again}"
    yield f"{len(one.rows)} {len(one.executions)}"
    for entry in one.executions[:SHOWN]:
        yield f"{entry.execution.id} {entry.state} {entry.told} {facts.why_not(entry)}"
