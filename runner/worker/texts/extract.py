"""The step that makes text of web pages: documents whose text is HTML. A page that cannot be read
is counted by reason and kept in `unreadable.jsonl`, as it is, with its `reason`."""

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from engine.data.documents import Document, as_line, whole_documents
from runner.schema.data_report import REPORT
from runner.worker.texts import page_reader, reports
from runner.worker.texts.filter_and_join import check_left, write_text
from runner.worker.texts.page_text import Block, Read, joined
from runner.worker.texts.page_tree import BYTES, Unreadable
from runner.worker.texts.shards import link, shards

UNREADABLE = "unreadable.jsonl"
EDGE = 5  # blocks at each end of a page among which repeated ones are boilerplate
FEWEST = 5  # pages; a source with fewer is compared as if it had so many
REMOVED = "boilerplate: repeated texts at the edges of pages"

Edge = tuple[str, bytes]  # a source, and a digest of a text at the edge of one of its pages


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
            with tempfile.TemporaryFile(dir=out) as answers:
                repeated = _read(path, answers, config["to"] == "markdown", config["boilerplate"])
                answers.seek(0)
                write_text(out, name, _texts(path, answers, repeated, aside, tally))
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


def _read(path: Path, answers: BinaryIO, markdown: bool, share: float | None) -> set[Edge]:
    """Read the pages of a shard. Writes a line for each: its title and blocks, or why there are
    none. Returns the texts that at least this share of a source's pages has at an edge."""
    edges: Counter[Edge] = Counter()
    pages: Counter[str] = Counter()
    seen: set[Edge] = set()  # equal pages count once
    for document in whole_documents(path):
        answer: object
        try:
            answer = found = _page(document["text"].encode(), markdown)
            source = reports.source_of(document)
            if (whole := _edge(source, Block(joined(found.blocks)))) not in seen:
                seen.add(whole)
                pages[source] += 1
                edges.update({_edge(source, found.blocks[at]) for at in _ends(found.blocks)})
        except Unreadable as why:
            answer = str(why)
        answers.write(json.dumps(answer).encode() + b"\n")
    more_than_all = 2
    least = {
        source: (share or more_than_all) * max(count, FEWEST) for source, count in pages.items()
    }
    return {edge for edge, count in edges.items() if count >= least[edge[0]]}


def _page(page: bytes, markdown: bool) -> Read:
    if len(page) > BYTES:
        raise Unreadable(f"larger than {BYTES >> 20} MiB")
    return page_reader.read(page, markdown)


def _texts(
    path: Path, answers: BinaryIO, repeated: set[Edge], aside: BinaryIO, tally: reports.Tally
) -> Iterator[Document]:
    """The documents of a shard with what its pages were answered with, without the repeated
    texts. What is unreadable goes `aside`."""
    for document, line in zip(whole_documents(path), answers, strict=True):
        answer = json.loads(line)
        if isinstance(answer, list):
            title, blocks = answer[0], [Block(*block) for block in answer[1]]
            kept = _without(repeated, reports.source_of(document), blocks)
            if removed := len(blocks) - len(kept):
                tally.counted[REMOVED] += removed
            answer = "only boilerplate" if not kept else answer
        if isinstance(answer, str):
            tally.leave_out(document, f"unreadable: {answer}")
            aside.write(as_line(document | {"reason": answer}))
            continue
        made = document | {"text": joined(kept)}
        if title is not None:
            made.setdefault("title", title)
        tally.keep(document, made)
        yield made


def _without(repeated: set[Edge], source: str, blocks: list[Block]) -> list[Block]:
    if not repeated:
        return blocks
    ends = {at for at in _ends(blocks) if _edge(source, blocks[at]) in repeated}
    return [block for at, block in enumerate(blocks) if at not in ends]


def _ends(blocks: list[Block]) -> Iterator[int]:
    """Where in a page boilerplate may be: its first and last blocks but headings and code."""
    for at in range(len(blocks)):
        if min(at, len(blocks) - 1 - at) < EDGE and not blocks[at].firm:
            yield at


def _edge(source: str, block: Block) -> Edge:
    return source, hashlib.blake2b(block.text.encode(), digest_size=8).digest()
