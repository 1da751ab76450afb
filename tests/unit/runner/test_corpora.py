"""Corpora: the lab's registry, and fetching into the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.publish import corpora
from runner.publish.corpora import CorpusError
from runner.schema import lab_config
from runner.schema.corpora import Corpus, matches
from runner.schema.lab_config import CORPORA
from runner.store.store import Store
from tests.runner.corpora import WEB, corpus, lines
from tests.runner.corpora import raw as raw
from tests.runner.corpora import store as store


def parse(text: str) -> dict[str, Corpus]:
    return dict(lab_config.parse({CORPORA: text.encode()}).corpora)


# ── The registry ─────────────────────────────────────────────────────────────────────────────────


def test_an_entry_has_its_defaults_and_a_licence_as_spdx_writes_it() -> None:
    corpus = parse(f"web@1:\n  {WEB}\n")["web@1"]
    assert (corpus.licence, corpus.split.share, corpus.fetched) == ("MIT", 1 / 32, None)
    assert corpus.takes("a/b.jsonl.gz")
    assert not corpus.takes("b.txt")


def test_every_lab_has_licensed_reference_texts_of_debian_packages() -> None:
    found = lab_config.defaults().corpora
    assert all(one.licence for one in found.values())
    packaged = [one for one in found.values() if one.package]
    assert len(packaged) >= 15
    for one in packaged:
        assert one.fetched
        assert one.split.share
        assert one.where.startswith("/usr/share/")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (f"web:\n  {WEB}", "`web`: `web` is not a name of a corpus; write name@version"),
        (f"web@1:\n  {WEB}\n  spilt: {{}}", "line 5, `web@1.spilt`: unknown key; did you mean"),
        ("web@1: {where: a, format: txt, licence: MIT}", "`web@1.format`: must be `jsonl`"),
        ("web@1: {where: a, format: html, licence: GFDL}", "`GFDL` is no SPDX expression; write"),
        (f"web@1:\n  {WEB}\n  split: {{}}", "`web@1.split.share`: write either it or"),
        (f"web@1:\n  {WEB}\n  starts: a", "line 5, `web@1.starts`: it is for `format: text`"),
        ("web@1: {where: a, format: html, licence: MIT, fields: {id: x}}", "only jsonl and par"),
        ("web@1: {where: a, format: text, licence: MIT, starts: (}", "is no regular expression"),
        (
            "web@1: {where: a, format: html, licence: MIT, split: {share: 0.1, by: host}}",
            "`web@1.split`: its documents have no field `host`; write `by: id`",
        ),
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_its_line(entry: str, words: str) -> None:
    with pytest.raises(BadExperiment) as refused:
        parse(entry)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("path", "globs", "does"),
    [
        ("a.html", ("**/*.html",), True),
        ("b/c/a.html", ("**/*.html",), True),
        ("b/c/a.html", ("*.html",), False),
        ("b/c/a.html", ("b/*/a.html",), True),
        ("axhtml", ("a.html",), False),
        ("b/a.html", ("b/**",), True),
    ],
)
def test_files_are_named_by_globs(path: str, globs: tuple[str, ...], does: bool) -> None:
    assert matches(path, globs) is does


# ── Fetching ─────────────────────────────────────────────────────────────────────────────────────


def test_a_fetched_corpus_is_in_the_store_under_the_digest_of_its_files(
    store: Store, raw: Path, tmp_path: Path
) -> None:
    fetched = corpora.fetch(store, "web@1", corpus(), tmp_path)
    assert (fetched.files, corpora.is_there(store, fetched.sha256)) == (4, True)
    assert corpora.damaged(store, fetched.sha256) == []
    again = corpora.fetch(store, "web@1", corpus(fetched=fetched), tmp_path)
    assert again == fetched, "the same files are the same corpus"
    (raw / "b/0.jsonl").write_bytes(lines("another"))
    with pytest.raises(CorpusError, match=r"others than when its digest was written \(b/0.jsonl\)"):
        corpora.fetch(store, "web@1", corpus(fetched=fetched), tmp_path)


def test_a_fetch_that_was_killed_goes_on_where_it_stopped(
    store: Store, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "BLOCK", 100)
    size = sum(path.stat().st_size for path in raw.rglob("*.jsonl"))
    asked: list[tuple[str, int]] = []
    blocks = corpora._Folder.blocks

    def seen(self: corpora._Folder, path: str, start: int) -> Iterator[bytes]:
        asked.append((path, start))
        return blocks(self, path, start)

    def killed(done: int, _: int, __: str) -> None:
        if done > size // 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(corpora._Folder, "blocks", seen)
    with pytest.raises(KeyboardInterrupt):
        corpora.fetch(store, "web@1", corpus(), tmp_path, killed)
    stopped = asked.pop()
    (raw / stopped[0]).touch()  # no other content, but nobody can know
    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        corpora.fetch(store, "web@1", corpus(), tmp_path, killed)
    before = len(asked)
    fetched = corpora.fetch(store, "web@1", corpus(), tmp_path)
    assert asked[before - 1] == (stopped[0], 0), "a file that may have changed is copied again"
    assert asked[before][0] == stopped[0]
    assert asked[before][1] > 0, "and one that has not goes on"
    assert "b/0.jsonl" not in {path for path, _ in asked}, "and one that is there is not"
    assert fetched.bytes == size
    assert not list((tmp_path / "cache/corpora").glob("*/")), "nothing is left behind"


def test_any_place_that_fsspec_opens_will_do(store: Store, tmp_path: Path) -> None:
    import fsspec

    place = fsspec.filesystem("memory")
    place.pipe("/corpus/a/one.jsonl", lines("one"))
    place.pipe("/corpus/readme.md", b"no document")
    fetched = corpora.fetch(store, "web@1", corpus(where="memory://corpus"), tmp_path)
    assert (fetched.files, fetched.bytes) == (1, len(lines("one")))
    with pytest.raises(CorpusError, match="could not be fetched from hf://"):
        corpora.fetch(store, "web@2", corpus(where="hf://"), tmp_path)


def test_what_cannot_be_fetched_says_why_and_what_to_do(
    store: Store, raw: Path, tmp_path: Path
) -> None:
    missing = corpus(where="nowhere", package="python3.11-doc")
    with pytest.raises(CorpusError, match=r"no file there.*apt-get install python3.11-doc"):
        corpora.fetch(store, "web@1", missing, tmp_path)
    (raw / "out.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(CorpusError, match=r"out.jsonl is a link that leads out of"):
        corpora.fetch(store, "web@1", corpus(), tmp_path)
    with pytest.raises(CorpusError, match=r"no list of its files; name each"):
        corpora.fetch(store, "web@1", corpus(where="https://e.example/data/"), tmp_path)


def test_a_damaged_file_in_the_store_is_named(store: Store, tmp_path: Path) -> None:
    fetched = corpora.fetch(store, "web@1", corpus(), tmp_path)
    place = store.local(f"corpora/{fetched.sha256}") / "files/b/1.jsonl"
    place.write_bytes(place.read_bytes()[:-1] + b" ")
    assert corpora.damaged(store, fetched.sha256) == ["b/1.jsonl"]


def test_a_corpus_is_fetched_by_one_process_at_a_time(store: Store, tmp_path: Path) -> None:
    def again(*_: object) -> None:
        corpora.fetch(store, "web@1", corpus(), tmp_path)

    with pytest.raises(CorpusError, match="web@1 is being fetched by another process"):
        corpora.fetch(store, "web@1", corpus(), tmp_path, again)
    again()
