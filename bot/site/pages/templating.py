"""What templates use: formatted figures, relative links, and the parts of every page. Strangers'
text is escaped."""

import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from bot.model.escape import isolated
from bot.site.base.drawn import short
from bot.site.base.files import File, made_from
from bot.site.facts import outputs, people, sealed
from bot.site.facts.entries import Entry
from bot.site.pages.citation import bibtex
from runner.analysis import answer, estimates, findings, score_table, verdicts
from runner.history import lost_work
from runner.lib import addresses, format
from runner.planning import mesh_words
from runner.publish import step_summary
from runner.schema import metrics, prediction_forms, record

HERE = Path(__file__).parent
COMPILED = HERE / "templates" / "__pycache__"
MISSING = "404.html"  # servers show it at every address that has no page
MARKS = {"confirmed": "✓", "refuted": "✗", "inconclusive": "○"}
PLACES = {  # of the navigation
    "experiments.html": "Experiments",
    "leaderboards.html": "Leaderboards",
    "speedrun.html": "Speedrun",
    "forecasts.html": "Forecasts",
    "people.html": "People",
    "compare.html": "Compare",
}


@dataclass(frozen=True)
class Look:
    """Common parts of all pages of a site."""

    pages: jinja2.Environment
    told: str  # a digest of it
    left_out: Mapping[str, str] = field(default_factory=dict)  # noted on pages
    home: str | None = None  # web address of the lab's repository

    def saying(self, left_out: Mapping[str, str]) -> "Look":
        """The same, with a note on each page about what was left out and why."""
        told = made_from(self.told, *(part for one in left_out.items() for part in one))
        return replace(self, told=told, left_out=left_out) if left_out else self

    def at(self, repository: str | None) -> "Look":
        """The same, and each page links the lab's repository (`owner/name`); without the host's
        address, or the name, none does."""
        host = self.pages.globals["host"]
        if not host or not repository:
            return self
        home = f"{host}/{quote(repository)}"
        return replace(self, told=made_from(self.told, home), home=home)

    def page(self, path: str, template: str, made: str, **facts: Any) -> File:
        """A page at `path` below the site's folder; `made` as for a `File`."""
        return File(path, lambda: self.render(path, template, **facts), made)

    def render(self, path: str, template: str, **facts: Any) -> str:
        """A page for `path`."""
        root = self.pages.globals["top"] if path == MISSING else "../" * path.count("/")
        return self.pages.get_template(template).render(
            root=root, left_out=self.left_out, home=self.home, **facts
        )


def look(
    lab: str,
    repository_url: str | None = None,
    *,
    signs: bool = False,
    live: bool = False,
    address: str = "",
) -> Look:
    """The look of this lab's pages. `repository_url` is the host's web address; `signs`: whether
    there are signed files; `live`: whether the server also shows current executions; `address`: the
    site's URL, if known."""
    address = address.rstrip("/")
    told = made_from(lab, repository_url or "", str(signs), str(live), address)
    return Look(_templates(lab, repository_url, signs, live, address), told)


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Compiled templates beside their sources, as Python keeps compiled modules. What cannot be
    read or written there is compiled again."""

    def __init__(self) -> None:
        super().__init__(str(COMPILED), "%s.pyc")

    def get_source_checksum(self, source: str) -> str:
        return made_from(source)  # and from Jinja, its settings, and our filters

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(Exception):  # whatever it contains
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            COMPILED.mkdir(exist_ok=True)
            super().dump_bytecode(bucket)


@cache
def _templates(
    lab: str, repository_url: str | None, signs: bool, live: bool, address: str
) -> jinja2.Environment:
    """Templates with formatters for figures. Strangers' text is escaped."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=isolated,
        auto_reload=False,
        bytecode_cache=_Compiled(),
    )
    host = repository_url.rstrip("/") if repository_url else None

    def thread(repository: str | None, kind: str, number: int) -> str | None:
        return f"{host}/{quote(repository)}/{kind}/{number}" if host and repository else None

    def commit(origin: record.Origin) -> str | None:
        name = quote(origin.repository_name)
        return f"{host}/{name}/commit/{origin.commit}" if host and name else None

    def citation(entry: Entry, path: str, what: str) -> str:
        return bibtex(entry, what, lab, f"{address}/{path}" if address else "")

    pages.globals.update(
        citation=citation,
        compared=compared,
        data_pages=outputs.pages_of,
        lab=lab,
        signs=signs,
        live=live,
        address=address,
        top=f"{address}/" if address or live else "",  # where the site begins, if that is known
        marks=MARKS,
        places=PLACES,
        person=person,
        foretold=bool(sealed.sealed_ones()),
        parts=prediction_forms.parts,
        answer=answer.of,
        finding=findings.found,
        expectation=findings.predicted,
        thread=thread,
        host=host,
        is_here=addresses.is_here,
        commit=commit,
        on_devices=mesh_words.told,
        ordered=step_summary.ordered,
        ended=step_summary.ended,
        lost=lost_work.told,
        of_receipt=step_summary.receipt,
        signed=signed,
        score_rows=score_table.worth_showing,
        score_head=score_table.HEAD,
        scores_of_run=score_table.of_run,
        meaning=metrics.words,
        asks=metrics.asks,
    )
    pages.filters.update(
        duration=format.duration,
        full_stop=format.full_stop,
        flops=format.flops,
        count=format.count,
        flow=format.flow,
        cell=cell,
        shell=shlex.quote,
        short=short,
        size=format.size,
        bpb=lambda value: estimates.figure(value, 4),
        percent=format.percent,
        sure=format.sure,
        spans=spans,
        expected=lambda expect: verdicts.parse_expect(expect).words,
        day=lambda at: at.strftime("%Y-%m-%d"),
        minute=lambda at: at.strftime("%Y-%m-%d %H:%M UTC"),
    )
    return pages


def person(of: record.Person | None, name: str, root: str) -> Markup:
    """A person's name, linked to their page, if a record identifies them."""
    if of is None:
        return escape(isolated(name))
    # Not by `Markup.format`, which takes ten times as long: tables have thousands of rows.
    return Markup(f'<a href="{escape(root)}{people.page_of(of.id)}">{escape(isolated(name))}</a>')


def spans(words: str) -> Markup:
    """A sentence of the lab, with text between backticks as code."""
    parts = map(isolated, words.split("`"))
    return Markup().join(
        Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts)
    )


def compared(names: Iterable[str]) -> str:
    """The state of a link that compares these runs, whose names may contain a comma."""
    return "runs=" + quote(",".join(quote(name, safe="") for name in names), safe=",")


def signed(error: float) -> str:
    """A relative error in percent, for a table."""
    return f"{round(100 * error, 2) + 0.0:+.2f} %".replace("-", "−").replace("+0.00", "0.00")


def cell(value: Any) -> str:
    """A figure or a text in the table behind a chart."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.6g}".replace("e+", "e").replace("e-0", "e-")
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) < 1e15 else format.flops(value)
    return "–" if value is None else str(value)
