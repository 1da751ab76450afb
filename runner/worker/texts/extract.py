"""The step that makes text of web pages: documents whose text is HTML. A page that cannot be read
is counted by reason and kept in `unreadable.jsonl`, as it is, with its `reason`."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from engine.data.documents import Document, as_line, whole_documents
from runner.schema.data_report import REPORT
from runner.worker.texts import page_reader, reports
from runner.worker.texts.filter_and_join import check_left, write_text
from runner.worker.texts.page_text import BYTES, Read, Unreadable
from runner.worker.texts.shards import link, shards

UNREADABLE = "unreadable.jsonl"


def extract(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Make text of each page, in order; each shard gives a shard."""
    with tempfile.TemporaryDirectory(dir=out) as made:
        extract_shards(config, {"shards": shards(inputs["text"])}, Path(made))
        join(config, {**inputs, "parts": {"all": Path(made)}}, out)


def extract_shards(
    config: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Path]], out: Path
) -> None:
    """The same for the input `shards`, {name: file}."""
    tally = reports.Tally()
    with (out / UNREADABLE).open("wb") as aside:
        for name, path in inputs["shards"].items():
            write_text(out, name, _texts(path, config, aside, tally))
    tally.write_sums(out)


def join(_: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Join the results of `extract_shards`, in the folders of the input `parts`, to one text, one
    report and one file of unreadable pages."""
    with (out / UNREADABLE).open("wb") as aside:
        for _name, part in sorted(inputs["parts"].items()):
            for path in sorted(part.iterdir()):
                if path.name == UNREADABLE:
                    with path.open("rb") as file:
                        shutil.copyfileobj(file, aside)
                elif path.name != reports.SUMS:
                    link(path, out / path.name)
    reports.finish(out, inputs["parts"].values())
    check_left(inputs["text"], out, f"can be read; {UNREADABLE} and {REPORT} say why")


def _texts(
    path: Path, config: Mapping[str, Any], aside: BinaryIO, tally: reports.Tally
) -> Iterator[Document]:
    """The documents of a shard with the text of their pages. What is unreadable goes `aside`."""
    for document in whole_documents(path):
        try:
            title, text = _page(document["text"], config)
        except Unreadable as why:
            tally.leave_out(document, f"unreadable: {why}")
            aside.write(as_line(document | {"reason": str(why)}))
            continue
        made = document | {"text": text}
        if title is not None:
            made.setdefault("title", title)
        tally.keep(document, made)
        yield made


def _page(page: str, config: Mapping[str, Any]) -> Read:
    if len(page.encode()) > BYTES:
        raise Unreadable(f"larger than {BYTES >> 20} MiB")
    return page_reader.read(page, config["extractor"], config["to"] == "markdown")
