"""Corpora are fetched by real processes, over HTTP and from buckets; one that is killed is followed
by another, which continues."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.publish import corpora
from runner.schema import lab_config
from runner.schema.corpora import Corpus
from runner.schema.lab_config import CORPORA
from runner.store import gcs
from runner.store.store import Store
from runner.worker.texts import corpus as step
from tests import fake_gcs, fake_hub

DATA = b"".join(
    json.dumps({"text": f"{n} {'word ' * 20}"}).encode() + b"\n" for n in range(150_000)
)


class _Server(ThreadingHTTPServer):
    """Serves DATA; slowly until `hurry` is set."""

    ranges = True
    asked: list[int]
    hurry: threading.Event


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        span = self.headers.get("Range", "") if self.server.ranges else ""
        first, last = 0, len(DATA) - 1
        if span.startswith("bytes="):
            one, _, other = span.removeprefix("bytes=").partition("-")
            first, last = int(one or 0), min(int(other or last), last)
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(DATA)}")
        if self.server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", '"one"')
        self.end_headers()
        if self.command == "HEAD":
            return
        self.server.asked.append(first)
        try:
            for start in range(first, last + 1, 1 << 18):
                self.wfile.write(DATA[start : min(start + (1 << 18), last + 1)])
                if not self.server.hurry.is_set():
                    time.sleep(0.05)
        except OSError:  # the reader was killed
            pass

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server(("127.0.0.1", 0), _Handler)
    made.asked, made.hurry = [], threading.Event()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def lab(tmp_path: Path, url: str) -> dict[str, str]:
    """A lab with a corpus at this URL, and the environment of its commands."""
    place = tmp_path / CORPORA
    place.parent.mkdir(parents=True)
    place.write_text(f"web@1: \n  where: {url}\n  format: jsonl\n  licence: MIT\n")
    return {**os.environ, "REGATTA_CACHE": str(tmp_path / "cache")}


FETCH = [sys.executable, "-c", "from runner.cli.main import app; app()", "corpus", "fetch", "web@1"]


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole files only"])
def test_a_fetch_over_http_that_was_killed_goes_on(
    tmp_path: Path, server: _Server, ranges: bool
) -> None:
    server.ranges = ranges
    environment = lab(tmp_path, f"http://127.0.0.1:{server.server_port}/web.jsonl")
    first = subprocess.Popen(FETCH, cwd=tmp_path, env=environment)
    parts = tmp_path / "cache/corpora"
    until = time.monotonic() + 60
    while not any(x.stat().st_size for x in parts.glob("*/parts/*")):
        assert time.monotonic() < until
        time.sleep(0.05)
    first.kill()
    first.wait()
    (part,) = parts.glob("*/parts/*")
    there = part.stat().st_size
    assert 0 < there < len(DATA)
    server.asked.clear()
    server.hurry.set()
    subprocess.run(FETCH, cwd=tmp_path, env=environment, check=True, timeout=60)
    assert min(server.asked) == (there if ranges else 0)
    fetched = lab_config.find(tmp_path).corpora["web@1"].fetched
    assert fetched
    assert fetched.bytes == len(DATA)
    file = tmp_path / f"store/corpora/{fetched.sha256}/files/web.jsonl"
    assert file.read_bytes() == DATA
    assert not any(parts.glob("*/"))


def test_a_tokenizer_comes_from_the_hub_without_the_weights_beside_it(tmp_path: Path) -> None:
    place = tmp_path / CORPORA
    place.parent.mkdir(parents=True)
    place.write_text("words@1:\n  where: hf://acme/words\n  format: tokenizer\n  licence: MIT\n")
    with fake_hub.hub() as hub:
        hub.files = {"tokenizer.json": b'{"version": "1.0"}', "model.safetensors": b"weights"}
        cache = {"REGATTA_CACHE": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "hub")}
        environment = {**os.environ, **cache, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
        fetch = [*FETCH[:-1], "words@1"]
        subprocess.run(fetch, cwd=tmp_path, env=environment, check=True, timeout=60)
    fetched = lab_config.find(tmp_path).corpora["words@1"].fetched
    assert fetched
    assert fetched.files == 1
    files = tmp_path / f"store/corpora/{fetched.sha256}/files"
    assert (files / "tokenizer.json").read_bytes() == b'{"version": "1.0"}'
    assert not any("safetensors" in path for _, path, _ in hub.asked)


def test_a_corpus_comes_from_a_bucket_and_is_kept_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(corpora, "BLOCK", 1000)
    with fake_gcs.serving() as fake:
        fake.buckets.setdefault("bucket", {})
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        monkeypatch.setattr(gcs, "RETRY", gcs.RETRY.with_delay(initial=0.01))
        (tmp_path / "raw").mkdir()
        (tmp_path / "raw/a.jsonl").write_bytes(DATA[:4_500])
        (tmp_path / "raw/b.txt").write_bytes(b"no document")
        Store("gs://bucket/from").upload_folder("texts/web", tmp_path / "raw")
        said = {"where": "gs://bucket/from/texts/web", "format": "jsonl", "licence": "MIT"}
        corpus = Corpus.model_validate({**said, "split": {"share": 0.5}})
        store = Store("gs://bucket/lab")
        fetched = corpora.fetch(store, "web@1", corpus, tmp_path)
        assert (fetched.files, fetched.bytes) == (1, 4_500)
        assert corpora.damaged(store, fetched.sha256) == []
        folder = store.fetch(f"corpora/{fetched.sha256}")
        (out := tmp_path / "out").mkdir()
        found = {**fetched.model_dump(), **corpus.read()}
        config = {"corpus": "web@1", "most_left_out": 1.0, "found": found}
        with pytest.raises(step.BadText, match="ends in the middle of a document"):
            step.make(config, {"kept": folder}, out)
