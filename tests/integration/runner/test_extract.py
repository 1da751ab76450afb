"""Of `test_extract.py` what needs a process."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.data.documents import whole_documents
from runner.isolation import bubblewrap, limited
from runner.planning import planner
from runner.store import digests
from runner.store.store import Store
from runner.worker import executor
from runner.worker.texts import page_reader, shards
from runner.worker.texts.extract import UNREADABLE
from runner.worker.texts.page_text import Unreadable
from tests.integration.runner.test_execute import HEAD, planned

SLOW = "<div " + " ".join(f"a{n}=1" for n in range(60_000)) + ">x"  # a parser compares all


def read(page: str) -> str:
    return page_reader.read(page, "trafilatura", markdown=True).text


OWN = """
import json

def prepare(config, inputs, out):
    for name in ("train.0", "train.1", "validation"):
        pages = [f"<title>{name}</title><p>page {n} of {name}" for n in range(9)]
        lines = [json.dumps({"id": f"{name}-{n}", "text": page}) for n, page in enumerate(pages)]
        (out / f"{name}.jsonl").write_text("\\n".join([*lines, '{"text": "<br>"}']))
"""
DECLARED = f"""{HEAD}steps:
  prepare: {{do: own:prepare}}
  extract: {{do: extract, inputs: {{text: prepare}}}}
"""


def test_a_page_that_takes_a_parser_too_long_is_unreadable_and_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = page_reader.LIMITS._replace(seconds=1.0)
    monkeypatch.setattr(page_reader, "LIMITS", limits)
    assert read("<h1>one</h1><p>two") == "one\ntwo"
    with pytest.raises(Unreadable, match="more than 20 seconds of a processor or 3 GiB"):
        read(SLOW)
    with pytest.raises(Unreadable, match="no text"):
        read("")
    assert read("<p>zwölf") == "zwölf"


def test_a_page_that_ends_its_reader_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = dict[object, Any]()
    monkeypatch.setattr(limited, "_SERVERS", servers)
    assert read("one") == "one"
    [first] = servers.values()
    stop = page_reader.limited.pickle.dumps

    def stopping(body: object) -> bytes:
        os.kill(first.pid, signal.SIGSTOP)  # it runs, and ends at this page
        threading.Timer(0.3, os.kill, (first.pid, signal.SIGKILL)).start()
        return stop(body)

    with monkeypatch.context() as patched:
        patched.setattr(limited.pickle, "dumps", stopping)
        with pytest.raises(Unreadable):
            read("two")
    assert read("three") == "three"
    [second] = servers.values()
    assert second.pid != first.pid


def test_a_reader_that_cannot_begin_is_no_fault_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "_SERVERS", {})
    monkeypatch.setattr(limited.sys, "executable", "/usr/bin/false")
    with pytest.raises(RuntimeError, match="ended with 1 before the first call"):
        read("<p>Text.")


def test_an_experiment_extracts_pages_to_the_same_bytes_in_one_process_several_or_a_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = set()
    terms_of = [(1, executor.OWN_MACHINE), (shards.TOGETHER, executor.OWN_MACHINE)]
    if not bubblewrap.probe():
        terms_of.append((1, executor.Terms("bubblewrap")))
    for together, terms in terms_of:
        monkeypatch.setattr(shards, "TOGETHER", together)
        folder = extracted(tmp_path / f"{together} {terms.isolation}", terms)
        made.add(digests.sha256(digests.digests(folder)))
    assert len(made) == 1
    found = list(whole_documents(folder / "train.00001.jsonl"))
    assert found[3] == {"id": "train.1-3", "text": "page 3 of train.1", "title": "train.1"}
    aside = [json.loads(line) for line in (folder / UNREADABLE).read_text().splitlines()]
    assert aside == [{"text": "<br>", "reason": "no text"}] * 3


def extracted(place: Path, terms: executor.Terms) -> Path:
    """The output of DECLARED."""
    place.mkdir()
    store = Store(place / "store")
    plan = planned(place, store, DECLARED, own=OWN)
    code = store.local(planner.code_folder(plan))
    for step in ("prepare", "extract"):
        made = executor.make(store, step, plan.steps, plan.kinds, code, "x1", terms=terms)
    return made.folder
