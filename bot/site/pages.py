"""The static site, drawn from the records alone: equal records give equal pages.

Each page is one of `files`, drawn when what it is made from has changed; each kind of page is a
module of its own. Links are relative and nothing is asked of another host, so the site works from
file:// and below any path.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from bot.site import (
    boards,
    chart,
    data,
    delphi,
    entered,
    executions,
    experiments,
    feed,
    forecast_page,
    front,
    public,
    runs,
    signed,
    tracks,
)
from bot.site.board import Entry, Lab, read_lab, whole
from bot.site.files import File, is_site, made_from, put
from bot.site.memory import Memory
from bot.site.templating import HERE, look
from bot.site.twins import leaderboard
from runner import signing
from runner.signing import Key
from runner.store import Store, to_json

SELDOM = 100_000  # new objects between two looks for garbage


class SiteError(Exception):
    """The site cannot be built as asked; the message says what to change."""


@dataclass(frozen=True)
class SiteSummary:
    """What was built."""

    path: Path
    executions: int
    rows: int
    drawn: tuple[str, ...]  # paths; all others stood there as they are


def build(
    store: Store,
    out: Path,
    *,
    lab: str = "Regatta",
    repository_url: str | None = None,
    key: Key | None = None,
    live: bool = False,
    remembered: Memory | None = None,
    address: str = "",
) -> SiteSummary:
    """Bring the folder `out` to hold the whole site, with signed files if there is a `key`.

    `repository_url` is the host's web address (https://github.com); without it the pages name
    issues and pull requests and do not link them. `live`: the pages are served by the bot, which
    shows at `/live/` what runs now. `address`: where people reach the site; a preview image is only
    found by its whole address, so without it none are drawn. Who builds often gives the same memory
    of `out` each time. Raises SiteError where `out` holds something that is no site, or an
    address is none.
    """
    out = out.resolve()
    _check(out, repository_url, address or None)
    with _seldom_collected():
        remembered = remembered or Memory(out)
        facts = read_lab(store, remembered)
        key = signing.in_force(store, key)
        drawn = put(files(facts, store, lab, repository_url, key, live, address), out)
        remembered.keep()
        rows = sum(len(group.rows) for group in facts.groups)
        return SiteSummary(out, len(facts.entries), rows, tuple(drawn))


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """What a build of a large lab makes lives until its end, and to look through all of that for
    garbage again and again would take a third of its time."""
    usual = gc.get_threshold()
    gc.set_threshold(SELDOM, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _check(out: Path, *urls: str | None) -> None:
    if out.exists() and not out.is_dir():
        raise SiteError(f"{out} is a file; name a folder for the site.")
    if out.is_dir() and not is_site(out):
        raise SiteError(
            f"{out} holds something that is no site of this lab, and building would replace it; "
            "name a folder that is empty or does not exist."
        )
    for url in urls:
        if url is not None and urlsplit(url).scheme not in ("http", "https"):
            raise SiteError(f"{url!r} is no web address; write https://….")


def files(
    facts: Lab,
    store: Store,
    lab: str,
    repository_url: str | None,
    key: Key | None,
    live: bool = False,
    address: str = "",
) -> Iterator[File]:
    """Every file of the site, what is linked to before what links to it."""
    this = look(lab, repository_url, bool(key), live, address)
    for path in sorted((HERE / "static").iterdir()):
        yield File(path.name, path.read_bytes, this.told)
    yield File("vega.js", chart.vega, made_from())
    if key:
        yield from signed.files(store, facts, key)
    yield from public.files(this.pages, this.told, store)
    yield from delphi.files(this.pages, this.told)
    yield from data.files(facts, this, store)

    @lru_cache(maxsize=1)  # the files of an execution are drawn one after the other
    def curves(number: int) -> Entry:
        return whole(store, facts.entries[number])

    for number, entry in enumerate(facts.entries):
        drawn = partial(curves, number)
        yield from runs.files(entry, drawn, this, store)
        yield from executions.files(entry, drawn, facts.review(entry), this)
    yield from experiments.files(facts, this)
    yield from runs.comparison(facts, this)
    yield from forecast_page.files(facts, this)
    yield from tracks.files(facts, this)
    yield from entered.files(store, facts, this)
    yield File("api/leaderboard.json", lambda: to_json(leaderboard(facts)), facts.told)
    ranked = boards.boards_of(facts)
    yield from boards.files(ranked, facts, this)
    yield from feed.files(ranked, facts, this)
    yield from front.files(ranked, facts, this)
