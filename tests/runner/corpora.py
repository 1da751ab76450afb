"""A small corpus: four files below `raw`, and its entry in the registry."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.schema.corpora import Corpus
from runner.store.store import Store

WEB = "where: raw\n  format: jsonl\n  licence: mit"


def lines(*texts: str, **more: Any) -> bytes:
    return b"".join(json.dumps({"text": text, **more}).encode() + b"\n" for text in texts)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw/b"
    folder.mkdir(parents=True)
    for number in range(4):
        texts = (f"document {number} {n}" for n in range(20))
        (folder / f"{number}.jsonl").write_bytes(lines(*texts))
    (folder / "notes.txt").write_text("no document")
    return tmp_path / "raw"


def corpus(**more: Any) -> Corpus:
    said = {"where": "raw", "format": "jsonl", "licence": "MIT", "split": {"share": 0.2}}
    return Corpus.model_validate({**said, **more})
