"""`regatta corpus add | fetch | ls | show | check`: the lab's corpora. `add` and `fetch` write the
lab's .github/regatta/corpora.yml, `fetch` the store. Jobs have no network, so this is where their
texts come in.

Exit codes: 0 done, 1 failed, 2 bad input.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import typer
import yaml
from rich.console import Console
from rich.filesize import decimal as size
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from engine.data import corpus_files
from engine.data.corpus_files import LeftOut
from engine.data.documents import Document
from engine.data.lab_texts import BadText
from runner.cli import options
from runner.cli.commands import App
from runner.cli.ending import FAILED, print_json, remark, stop, stopping, tell
from runner.cli.options import AsJson, TheJobs, TheStore
from runner.cli.tables import table
from runner.lib import yaml_lines
from runner.lib.format import flow, many
from runner.lib.problems import near
from runner.lib.untrusted_files import printable
from runner.publish import corpora
from runner.publish.corpora import CorpusError
from runner.schema import lab_config
from runner.schema.corpora import Corpus, Fetched, Format, folder
from runner.schema.lab_config import CORPORA
from runner.store.digests import BadOutput
from runner.store.store import Store, StoreError

HEAD = "# The lab's corpora; `regatta corpus -h` says how an entry comes here.\n"
SHOWN = 300  # characters of a record
NAMED = 3  # places of what is left out, for each reason

app = App(help="Register corpora, fetch them into the store, look into them.", no_args_is_help=True)

TheName = Annotated[str, typer.Argument(metavar="NAME@VERSION")]


class Registry(NamedTuple):
    """The lab's corpora.yml."""

    root: Path  # the lab's checkout
    corpora: dict[str, Corpus]

    @property
    def path(self) -> Path:
        return self.root / CORPORA

    def text(self) -> str:
        """What it says; empty if it does not exist."""
        return self.path.read_text(encoding="utf-8") if self.path.exists() else ""


def _registry() -> Registry:
    """That of the checkout in which the command is called."""
    here = Path()
    return Registry(lab_config.checkout(here) or here.resolve(), {**lab_config.find(here).corpora})


def _named(registry: Registry, name: str) -> Corpus:
    if name in registry.corpora:
        return registry.corpora[name]
    lists = "`regatta corpus ls` lists them"
    return stop(f"the lab has no corpus {name}; {lists}{near(name, registry.corpora)}")


def _fetched(name: str, corpus: Corpus, store: Store) -> Fetched:
    if corpus.fetched and corpora.is_there(store, corpus.fetched.sha256):
        return corpus.fetched
    return stop(f"{name} is not in {store.root}; fetch it with `regatta corpus fetch {name}`.")


# ── add ──────────────────────────────────────────────────────────────────────────────────────


@app.command()
def add(
    name: TheName,
    where: Annotated[
        str, typer.Argument(help="A folder, or a URL: gs://, s3://, hf://datasets/…, https://…")
    ],
    format: Annotated[str, typer.Option(help=f"{', '.join(get_args(Format))}.")],
    licence: Annotated[str, typer.Option(help="An SPDX expression, such as CC-BY-SA-4.0.")],
    about: Annotated[str | None, typer.Option(help="What it is, in a line.")] = None,
    files: Annotated[
        list[str] | None, typer.Option(help="Which files, such as '**/*.jsonl.gz'.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="Skip these.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=NAME", help="The file's name of text, id, url, source, licence."),
    ] = None,
    starts: Annotated[
        str | None, typer.Option(help="Of text: what a document's first line matches.")
    ] = None,
    held_out: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Files that are held out.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="The share of documents that is held out; 1/32.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="The field whose documents stay together; id.")
    ] = None,
    package: Annotated[
        str | None, typer.Option(help="The Debian package that installs the folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an entry for a corpus to the lab's .github/regatta/corpora.yml.

    The bot believes what the default branch says, so commit it."""
    registry = _registry()
    if name in registry.corpora:
        stop(f"{registry.path} has {name} already; a changed corpus is another version.")
    said: dict[str, Any] = {
        "about": about,
        "where": where,
        "package": package,
        "format": format,
        "files": files,
        "without": without,
        "fields": dict(pair.partition("=")[::2] for pair in field or ()),
        "starts": starts,
        "licence": licence,
        "split": {"validation": held_out, "share": share, "by": by},
    }
    said["split"] = {key: value for key, value in said["split"].items() if value is not None}
    entry = {key: value for key, value in said.items() if value not in (None, [], {})}
    text = registry.text() or HEAD
    block = yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True, width=100)
    _write(registry, f"{text.rstrip()}\n{block}")
    tell(f"wrote {registry.path}", as_json, file=registry.path, corpus=name, entry=entry)
    remark(f"next: regatta corpus fetch {name}", "dim")


def _write(registry: Registry, text: str) -> None:
    """Write the file's new text. Raises BadExperiment, and writes nothing, if it has mistakes."""
    lab_config.parse({CORPORA: text.encode()})
    registry.path.parent.mkdir(parents=True, exist_ok=True)
    with stopping(OSError, words=f"{registry.path} cannot be written: {{}}."):
        registry.path.write_text(text, encoding="utf-8")


# ── fetch ────────────────────────────────────────────────────────────────────────────────────


@app.command()
def fetch(
    name: TheName, store: TheStore = "store", jobs: TheJobs = None, as_json: AsJson = False
) -> None:
    """Copy the files of a corpus into the store, and write their digest to corpora.yml.

    A fetch that was killed continues where it stopped. If the entry has a digest already, the files
    must be the same."""
    registry = _registry()
    corpus, opened = _named(registry, name), options.made(store, jobs)
    if corpus.fetched and corpora.is_there(opened, corpus.fetched.sha256):
        remark(f"{name} is in {opened.root} already; `regatta corpus check {name}` reads it.")
        if as_json:
            print_json({"corpus": name, "fetched": corpus.fetched, "wrote": None})
        return
    with stopping(CorpusError, StoreError, BadOutput, code=FAILED), _progress() as progress:
        fetched = corpora.fetch(opened, name, corpus, registry.root, progress)
    said = f"{many(fetched.files, 'file')}, {size(fetched.bytes)}, SHA-256 {fetched.sha256}"
    text = None
    if not as_json:
        print(f"{name}: {said}")
    said = f"files: {fetched.files}, bytes: {fetched.bytes}"
    line = f'fetched: {{sha256: "{fetched.sha256}", {said}}}'
    if corpus.fetched is None:
        text = with_fetched(registry.text(), name, line)
        if text is not None:
            _write(registry, text)
        elif not as_json:
            remark(f"Write this into its entry in {registry.path}:")
            print(line)
    wrote = registry.path if text is not None else None
    if as_json:
        print_json({"corpus": name, "fetched": fetched, "wrote": wrote})
    elif wrote:
        print(f"wrote {wrote}")
    remark(f"next: commit {CORPORA}; a step takes it as {{do: corpus, config: {{corpus: {name}}}}}")


def with_fetched(text: str, name: str, line: str) -> str | None:
    """The text of corpora.yml with this line in the entry; None for an entry on one line. Comments
    stay."""
    found = yaml_lines.read(text)
    at = found.lines.get((name,))
    first = min(
        (n for path, n in found.lines.items() if path[:1] == (name,) and path[1:]), default=0
    )
    if at is None or first <= at:
        return None
    lines = text.splitlines()
    indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
    return "\n".join([*lines[: first - 1], indent + line, *lines[first - 1 :]]) + "\n"


@contextmanager
def _progress() -> Iterator[corpora.Progress]:
    """Shows how much is copied, on a terminal."""
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total, path: shown.update(
            task, completed=done, total=total or None, description=printable(path)[-40:]
        )


# ── ls, show, check ──────────────────────────────────────────────────────────────────────────


@app.command()
def ls(store: TheStore = "store", jobs: TheJobs = None, as_json: AsJson = False) -> None:
    """List the lab's corpora: licence, size, and whether the store has them."""
    registry, opened = _registry(), options.found(store, jobs)
    entries = [
        {
            "name": name,
            "licence": corpus.licence,
            "format": corpus.format,
            "fetched": corpus.fetched and corpus.fetched.model_dump(),
            "in_store": _is_in(opened, corpus),
        }
        for name, corpus in registry.corpora.items()
    ]
    if as_json:
        print_json(entries)
        return
    rows = [
        (
            name,
            of.licence,
            size(of.fetched.bytes) if of.fetched else "",
            "yes" if _is_in(opened, of) else "no",
        )
        for name, of in registry.corpora.items()
    ]
    columns = ("corpus", "licence", "size", "fetched")
    Console().print(table(columns, rows, right=("size",), whole=("corpus", "size", "fetched")))


def _is_in(store: Store | None, corpus: Corpus) -> bool:
    fetched = corpus.fetched
    return store is not None and fetched is not None and corpora.is_there(store, fetched.sha256)


@app.command()
def show(
    name: TheName,
    store: TheStore = "store",
    jobs: TheJobs = None,
    records: Annotated[int, typer.Option(min=0, max=1000, help="So many records.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show a corpus: digest, licence, size, documents by source, and its first records.

    Reads all of its files. Says what a step would leave out, why, and where some of it is."""
    registry = _registry()
    corpus, opened = _named(registry, name), options.opened(store, jobs)
    fetched = _fetched(name, corpus, opened)
    sources, bytes_, left_out = Counter[str](), Counter[str](), Counter[str]()
    first, where = list[Document](), dict[str, list[str]]()  # where some lie that are left out
    with stopping(BadText, StoreError, CorpusError, code=FAILED):
        for item in _documents(opened, name, corpus, fetched):
            if isinstance(item, LeftOut):
                left_out[item.why] += 1
                if len(places := where.setdefault(item.why, [])) < NAMED:
                    places.append(item.where)
                continue
            source = str(item["source"])
            sources[source] += 1
            bytes_[source] += len(item["text"].encode())
            if len(first) < records:
                first.append(item)
    by_source: list[dict[str, Any]] = [
        {"source": source, "documents": count, "bytes": bytes_[source]}
        for source, count in sources.most_common()
    ]
    found = {
        "name": name,
        **corpus.model_dump(mode="json", exclude_none=True),
        "place": str(opened.place(folder(fetched.sha256))),
        "sources": by_source,
        "left_out": {
            why: {"documents": count, "first": where[why]} for why, count in left_out.items()
        },
        "records": first,
    }
    if as_json:
        print_json(found)
        return
    out = Console(highlight=False, soft_wrap=True)
    for line in (
        f"{name}: {corpus.about or corpus.where}",
        f"licence {corpus.licence}; {corpus.format} from {corpus.where}",
        f"{many(fetched.files, 'file')}, {size(fetched.bytes)}, SHA-256 {fetched.sha256}",
        f"split: {flow(corpus.split)}",
        *(
            f"left out: {many(count, 'document')} {why} (first: {'; '.join(where[why])})"
            for why, count in left_out.most_common()
        ),
    ):
        out.print(printable(line), markup=False)
    rows = [(of["source"], f"{of['documents']:,}", size(of["bytes"])) for of in by_source]
    out.print(table(("source", "documents", "text"), rows, right=("documents", "text")))
    for document in first:
        line = json.dumps(document, ensure_ascii=False, default=str)
        out.print(printable(line if len(line) <= SHOWN else f"{line[:SHOWN]}…"), markup=False)


def _documents(
    store: Store, name: str, corpus: Corpus, fetched: Fetched
) -> Iterator[corpus_files.Item]:
    place = store.fetch(folder(fetched.sha256)) / "files"
    if corpus.format == "tokenizer":
        return iter(())
    how = corpus_files.declared(name, corpus.read())
    paths = sorted(corpora.files_of(store, fetched.sha256))
    return itertools.chain.from_iterable(
        corpus_files.read(place / path, path, how) for path in paths
    )


@app.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME@VERSION]...", help="All by default.")
    ] = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Read the files of corpora in the store again, and compare their digests."""
    registry, opened = _registry(), options.opened(store, jobs)
    every = [x for x, corpus in registry.corpora.items() if _is_in(opened, corpus)]
    found: dict[str, list[str]] = {}
    for name in names or every:
        fetched = _fetched(name, _named(registry, name), opened)
        with stopping(CorpusError, StoreError, BadOutput, code=FAILED):
            damaged = found[name] = list(corpora.damaged(opened, fetched.sha256))
        for path in damaged:
            place = opened.place(folder(fetched.sha256))
            remark(
                f"{name}: {printable(path)} is not the file that was fetched; remove {place}, "
                f"and run `regatta corpus fetch {name}`",
                "red",
            )
        if not damaged and not as_json:
            print(f"{name}: {many(fetched.files, 'file')} as fetched")
    if as_json:
        print_json([{"corpus": name, "damaged": damaged} for name, damaged in found.items()])
    if any(found.values()):
        raise typer.Exit(FAILED)
