"""Steps on texts: folders with `train.jsonl` and `validation.jsonl`, one {"text": …} per line, or
with many such shards per split (`runner.worker.texts.shards`). A document keeps its other
keys."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.data import filter_rules
from engine.data.documents import Document, as_line, documents, split_files, whole_documents
from engine.data.lab_texts import BadText
from runner.worker.texts import reports
from runner.worker.texts.shards import SPLITS as SPLITS
from runner.worker.texts.shards import link, shards

LOOSEN = "passes; loosen the filter"
LINES_REMOVED = "lines that c4/lines removed from documents that were kept"


ENDINGS = (".jsonl.gz", ".jsonl.zst")  # of formats, beside those of one part


def write_text(out: Path, name: str, text: Iterable[Document]) -> int:
    """Write one split of a text, or one shard of it. Returns the number of documents."""
    count = 0
    with (out / f"{name}.jsonl").open("wb") as file:
        for document in text:
            file.write(as_line(document))
            count += 1
    return count


def read_split(folder: Path, split: str) -> Iterator[str]:
    """The documents of one split, in order. Raises BadText."""
    return documents(*split_files(folder, split))


def filter_documents(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Keep the documents that pass, in order; each shard gives a shard."""
    filter_shards(config, {"shards": shards(inputs["text"])}, out)
    reports.finish(out, [out])
    check_left(inputs["text"], out, LOOSEN)


def filter_shards(
    config: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Path]], out: Path
) -> None:
    """Keep the documents of the input `shards`, {name: file}, that pass."""
    least, most = config["least_characters"] or 0, config["most_characters"] or float("inf")
    pattern = re.compile(config["matching"] or "")
    rules = filter_rules.each_rule(config.get("rules", ()))
    tally = reports.Tally()

    sources = config.get("sources", ())

    def why_not(document: Document) -> str | None:
        text = document["text"]
        if sources and reports.source_of(document) not in sources:
            return "of a source that is not one of sources"
        if len(text) < least:
            return f"shorter than least_characters, {least:,}"
        if len(text) > most:
            return f"longer than most_characters, {most:,}"
        return None if pattern.search(text) else "matching is not found in it"

    def passing(path: Path) -> Iterator[Document]:
        for document in whole_documents(path):
            text = document["text"]
            judged = filter_rules.Judged(text, why_not(document))
            if judged.reason is None:
                judged = filter_rules.judged(rules, text)
            if judged.reason is not None:
                tally.leave_out(document, judged.reason)
                continue
            if judged.removed_lines:
                tally.counted[LINES_REMOVED] += judged.removed_lines
            tally.keep(document, passed := document | {"text": judged.text})
            yield passed

    for name, path in inputs["shards"].items():
        write_text(out, name, passing(path))
    tally.write_sums(out)


def join_filtered(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Join the results of `filter_shards`, in the folders of the input `parts`, to one text."""
    join(config, inputs, out)
    check_left(inputs["text"], out, LOOSEN)


def join(_: Mapping[str, Any], inputs: Mapping[str, Mapping[str, Path]], out: Path) -> None:
    """Join all shards in the folders of the input `parts` to one text, and their counts to its
    report."""
    link_shards(inputs["parts"].values(), out)
    reports.finish(out, inputs["parts"].values())


def link_shards(parts: Iterable[Path], out: Path) -> None:
    """Have all shards of these folders in one."""
    for part in parts:
        for path in part.iterdir():
            if path.name != reports.SUMS:
                link(path, out / path.name)


def join_texts(_: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Join texts to one: the shards of each input, in the order of the inputs' names. Each split of
    the one has the same split of all."""
    folders = [folder for _, folder in sorted(inputs.items())]
    for split in SPLITS:
        found = [path for folder in folders for path in split_files(folder, split)]
        for number, path in enumerate(found):
            ending = next((x for x in ENDINGS if path.name.endswith(x)), path.suffix)
            link(path, out / f"{split}.{number:05d}{ending}")


def check_left(text: Path, out: Path, why: str) -> None:
    """Raise BadText, which says why, if a split of `text` had documents and has none in `out`."""
    for split in SPLITS:
        if _has_some(text, split) and not _has_some(out, split):
            raise BadText(f"no document of the {split} split {why}")


def _has_some(folder: Path, split: str) -> bool:
    return any(path.stat().st_size for path in split_files(folder, split))
