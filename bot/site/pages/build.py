"""Builds the static site from the records alone: equal records give equal pages.

Each page is one of `files`, and is drawn when what it is made from has changed; each kind of page
has a module of its own. Links are relative and no other host is needed, so the site works from
file:// and below any path.
"""

import gc
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from bot.site.base import chart, left_out
from bot.site.base.files import File, Put, is_site, made_from, put
from bot.site.base.left_out import listed
from bot.site.facts.entries import Entry, whole
from bot.site.facts.lab import Lab, read_lab
from bot.site.facts.memory import Memory
from bot.site.facts.people import members as people_of
from bot.site.facts.searches import Search
from bot.site.facts.searches import searches as searches_of
from bot.site.pages import (
    boards,
    delphi,
    entered,
    executions,
    experiment_index,
    experiments,
    feed,
    forecast_page,
    front,
    members,
    programs,
    runs,
    searches,
    signed,
    step_output,
)
from bot.site.pages import tracks as speedruns
from bot.site.pages.templating import HERE, MISSING, Look, look
from bot.site.pages.twins import leaderboard
from runner.analysis.speedrun_ranking import Row
from runner.lib.canonical_json import to_json
from runner.publish import signing
from runner.publish.signing import Key
from runner.schema.record import BadRecord
from runner.schema.tracks import Track
from runner.store.store import Store

log = logging.getLogger("regatta.site")
OWN = ("runs/", "executions/", "data/")  # pages of one execution
REPOSITORY = r"[\w.-]+/[\w.-]+"
# New objects between two garbage collections; and so many of these before older ones are looked at.
SELDOM = 1_000_000, 100, 100


class SiteError(Exception):
    """The site cannot be built with these options; the message says what to change."""


@dataclass(frozen=True)
class SiteSummary:
    """The result of a build."""

    drawn: tuple[str, ...]  # paths; all others were up to date
    left_out: Mapping[str, str]  # executions and paths, with the problem of each


def build(
    store: Store,
    out: Path,
    *,
    lab: str = "Regatta",
    repository_url: str | None = None,
    repository: str = "",
    key: Key | None = None,
    live: bool = False,
    remembered: Memory | None = None,
    address: str = "",
    tracks: Mapping[str, Track] | None = None,
    others: tuple[Row, ...] = (),
) -> SiteSummary:
    """Make the folder `out` contain the whole site, with signed files if there is a `key`.

    `repository_url` is the host's web address (https://github.com); without it the pages name
    issues and pull requests without links. `repository`: the lab's (`owner/name`), for links to it
    where the store's own executions do not name one. `live`: the bot serves
    the pages, with current executions at `/live/`. `address`: the site's public URL; preview images
    need it, so without it none are drawn. `tracks`: the lab's (None: the defaults). `others`: rows
    of speedruns that the store has not. Callers that build often pass the same memory of `out` each
    time. What cannot be read or drawn is left out; its place and the log say so. Raises SiteError
    if `out` contains something that is no site, or an address or the name of the repository is
    invalid, and errors that make the store unreadable.
    """
    out = out.resolve()
    _check(out, repository_url, address or None)
    if repository and not re.fullmatch(REPOSITORY, repository):
        raise SiteError(f"{repository!r} is no repository; write owner/name.")
    with _seldom_collected():
        remembered = remembered or Memory(out)
        gc.freeze()  # garbage collections skip what is remembered
        key = signing.in_force(store, key)
        shown = look(lab, repository_url, signs=bool(key), live=live, address=address)
        shown = shown.at(repository)
        every = read_lab(store, remembered, tracks, others)
        facts, done = _put(every, lambda some: files(some, store, shown, key), remembered, out)
        remembered.keep()
        left = dict(facts.left_out) | done.faults
        for what, why in left.items():
            if remembered.told.get(what) != why:
                log.warning("%s is left out of the site: %s", what, why)
        remembered.told = left
        return SiteSummary(tuple(done.drawn), left)


def _put(
    facts: Lab, of: Callable[[Lab], Iterator[File]], remembered: Memory, out: Path
) -> tuple[Lab, Put]:
    """Write the files of this lab to `out`; if some executions make common pages fail, without
    these."""

    def found(paths: Mapping[str, str], among: Sequence[Entry]) -> dict[str, str]:
        def fault(some: Sequence[Entry]) -> str | None:
            return left_out.fault_of(of(replace(facts, entries=tuple(some))), paths)

        faulty = left_out.culprits(among, fault, left_out.most_of(facts.entries))
        return {entry.execution.id: why for entry, why in faulty}

    paths, ids = remembered.suspects  # they may be fixed meanwhile
    again = [entry for entry in facts.entries if entry.execution.id in ids]
    faults = found(paths, again) if again else {}
    done = put(of(facts.without(faults)), out, left_out.drawn)
    shared = {path: why for path, why in done.faults.items() if not path.startswith(OWN)}
    if shared and (more := found(shared, facts.without(faults).entries)):
        faults |= more
        done = put(of(facts.without(faults)), out, left_out.drawn)
    remembered.suspects = dict(paths) | shared if faults else {}, faults.keys()
    return facts.without(faults), done


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Collect garbage rarely: the objects of a large build live until its end, and scanning them
    again and again would take a third of its time. Afterwards, what `gc.freeze` has hidden is
    collected again."""
    usual = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


def _check(out: Path, *urls: str | None) -> None:
    if out.exists() and not out.is_dir():
        raise SiteError(f"{out} is a file; name a folder for the site.")
    if out.is_dir() and not is_site(out):
        raise SiteError(
            f"{out} has something that is not a site of this lab, and building would replace it; "
            "name a folder that is empty or does not exist."
        )
    for url in urls:
        if url is not None and urlsplit(url).scheme not in ("http", "https"):
            raise SiteError(f"{url!r} is not a web address; write https://….")


def files(facts: Lab, store: Store, this: Look, key: Key | None) -> Iterator[File]:
    """Every file of the site, before the pages that link to it. If a kind of page cannot be listed,
    its main page says so."""
    this = this.at(facts.repository)
    these = this.saying(facts.left_out)  # of all executions
    asked = cache(lambda: experiments.experiments(facts))
    known = cache(lambda: people_of(facts))
    ranked = cache(lambda: [boards.Board(group, facts) for group in facts.groups])
    searched = cache(lambda: searches_of(store))

    def told_of() -> Sequence[Search]:
        try:
            return searched()
        except BadRecord:  # `searches.html` says it
            return ()

    for path in sorted((HERE / "static").iterdir()):
        yield File(path.name, path.read_bytes, this.told)
    yield File("vega.js", chart.vega, made_from())
    yield this.page(MISSING, MISSING, this.told)
    if key:
        signs = key
        yield from listed("api/keys.json", lambda: signed.files(store, facts, signs))
    yield from listed("delphi.html", lambda: delphi.files(this))
    yield from listed("data", lambda: step_output.files(facts, this, store))

    @lru_cache(maxsize=1)  # the files of an execution are drawn one after the other
    def curves(number: int) -> Entry:
        return whole(store, facts.entries[number])

    def own(number: int, entry: Entry) -> Iterator[File]:
        drawn = partial(curves, number)
        yield from runs.files(entry, drawn, this, store)
        yield from executions.files(entry, drawn, facts.review(entry), this)

    for number, entry in enumerate(facts.entries):
        page = f"executions/{entry.execution.id}/index.html"
        yield from listed(page, partial(own, number, entry))
    yield from listed("experiments", lambda: experiments.files(asked(), facts, these))
    yield from listed("experiments.html", lambda: experiment_index.files(asked(), facts, these))
    yield from listed("people.html", lambda: members.files(known(), facts, these))
    yield from listed("searches.html", lambda: searches.files(searched(), this))
    yield from listed("compare.html", lambda: runs.comparison(facts, these))
    yield from listed("forecasts.html", lambda: forecast_page.files(known(), facts, these))
    yield from listed("speedrun.html", lambda: speedruns.files(facts, these, store))
    yield from listed("entries.html", lambda: entered.files(store, facts, these))
    yield File("api/leaderboard.json", lambda: to_json(leaderboard(facts)), facts.told)
    yield from listed("api/index.html", lambda: programs.files(this))
    yield from listed("leaderboards.html", lambda: boards.files(ranked(), facts, these))
    yield from listed("feed.xml", lambda: feed.files(ranked(), facts, these))
    yield from listed("index.html", lambda: front.files(ranked(), facts, these, told_of()))
