"""People's pages, and the list of them: `people.html`, `people/<id>.html`. Agents have the same."""

from collections.abc import Iterator, Sequence

from bot.site.base.files import File, made_from
from bot.site.base.rows import SHOWN
from bot.site.facts import agents, forecasts
from bot.site.facts.lab import Lab
from bot.site.facts.people import Member
from bot.site.pages.forecast_page import reliability
from bot.site.pages.templating import Look
from runner.lib.canonical_json import to_json


def files(every: Sequence[Member], facts: Lab, look: Look) -> Iterator[File]:
    """A page for each, and the list."""
    programs = agents.members(facts, forecasts.forecasts(facts))
    of_agents = {one.agent.id: one for one in programs}
    for one in every:
        agent = of_agents.get(one.id)
        yield look.page(
            one.path,
            "person.html",
            made_from(look.told, *_told(one, facts), *(_of_agent(agent) if agent else ())),
            one=one,
            agent=agent,
            shown=SHOWN,
            facts=facts,
            reliability=reliability,
        )
    told = [part for one in every for part in _told(one, facts)]
    told += [part for one in programs for part in _of_agent(one)]
    made = made_from(look.told, *told)
    yield look.page("people.html", "people.html", made, every=every, agents=of_agents)
    yield File("api/agents.json", lambda: to_json(agents.twin(programs)), facts.told)


def _of_agent(agent: agents.Member) -> Iterator[str]:
    """What the page of an agent shows besides, likewise."""
    yield f"{agent.agent.sponsor} {agent.by_policy} {agent.by_people} {agent.device_hours}"
    yield from (decided.digest() for decided in agent.refused)


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
