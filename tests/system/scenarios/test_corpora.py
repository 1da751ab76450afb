"""An experiment on a corpus, on the sandbox: the bot says what is to be fetched, and after that a
maintainer runs it."""

from pathlib import Path

import pytest

from bot.site.pages.build import build
from runner.publish import charts, corpora
from runner.schema.corpora import Corpus
from runner.schema.lab_config import CORPORA
from tests.scenarios.lab import EXPERIMENT, TEXT, a_lab
from tests.system.scenarios.test_approval import line
from tests.system.scenarios.test_story import PIXEL, results

ON_CORPUS = EXPERIMENT.replace("source: text.txt", "corpus: small@1").replace("[0, 1, 2]", "[0]")
ENTRY = "small@1:\n  where: raw\n  format: text\n  starts: ^Line\n  licence: CC0-1.0\n"


def test_an_experiment_on_a_corpus_is_planned_once_it_is_fetched_and_then_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
    with a_lab(tmp_path) as lab:
        lab.sandbox.commit("grace", "main", {CORPORA: ENTRY.encode()}, "A corpus")
        lab.preregister()
        pull = lab.propose(ON_CORPUS)
        assert "`regatta corpus fetch small@1`" in lab.last(pull)
        (tmp_path / "raw").mkdir()
        (tmp_path / "raw/a.txt").write_text(TEXT)
        corpus = Corpus.model_validate(
            {"where": "raw", "format": "text", "starts": "^Line", "licence": "CC0-1.0"}
        )
        fetched = corpora.fetch(lab.store, "small@1", corpus, tmp_path)
        said = f'  fetched: {{sha256: "{fetched.sha256}", files: 1, bytes: {fetched.bytes}}}\n'
        lab.sandbox.commit("grace", "main", {CORPORA: (ENTRY + said).encode()}, "It is fetched")
        lab.sandbox.commit("ada", "warm", {"note.md": b"again"}, "Plan again")
        lab.settle()
        told = lab.last(pull)
        assert "small@1: CC0-1.0, 1 file" in told.replace("\u200b", "")
        lab.say("grace", pull, line(lab, pull, 2))
        assert [one["state"] for one in results(lab)] == ["done"]
        build(lab.store, lab.root / "site")
        pages = [path.read_text() for path in (lab.root / "site").rglob("*.html")]
        assert any("small@1" in page for page in pages)
