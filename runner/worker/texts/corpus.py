"""The step that makes a text of a corpus: each file's documents in order, train and held out, in
shards of a bounded size. In one process, or in several for groups of files, with the same bytes."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from engine.data import corpus_files
from engine.data.corpus_files import NO_FAULT, LeftOut
from engine.data.documents import Document, as_line
from engine.data.lab_texts import BadText
from runner.lib import bounds, untrusted_files
from runner.lib.canonical_json import to_json
from runner.lib.format import percent
from runner.schema.corpora import FILES_OF, MAX_LIST, matches
from runner.spec.step_types import KEPT
from runner.store import digests
from runner.store.digests import FileDigest
from runner.worker.texts import reports
from runner.worker.texts.shards import SPLITS, groups, link
from runner.worker.texts.shards import corpus_files as listed

SHARD = 32 << 20  # bytes after which a shard ends
SEEN = "seen.json"  # what a part writes for `_finish`
MAX_LICENCE, MAX_LICENCES = 200, 50  # characters of one, and how many the report names
WITHOUT = "without the field that `split` names"


class _Shards:
    """The shards of a text that is being written, from a number per split on."""

    def __init__(self, out: Path) -> None:
        self._out, self._files = out, dict[str, BinaryIO]()
        self._numbers = dict.fromkeys(SPLITS, 0)

    def add(self, split: str, document: Document) -> None:
        if split not in self._files:
            name = f"{split}.{self._numbers[split]:05d}.jsonl"
            self._files[split] = (self._out / name).open("xb")
            self._numbers[split] += 1
        self._files[split].write(as_line(document))
        if self._files[split].tell() >= SHARD:
            self._files.pop(split).close()

    def end(self) -> None:
        """End the current shards."""
        while self._files:
            self._files.popitem()[1].close()

    def __enter__(self) -> "_Shards":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.end()


class _Seen:
    """What the files read so far had."""

    def __init__(self) -> None:
        self.tally = reports.Tally()
        self.first: dict[str, str] = {}  # {reason: where the first document that has it is}
        self.licences: Counter[str] = Counter()

    def write(self, out: Path) -> None:
        """Write it for `_finish`."""
        self.tally.write_sums(out)
        (out / SEEN).write_bytes(to_json({"first": self.first, "licences": self.licences}))


def make(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Make the text in this process. Raises BadText."""
    seen = _Seen()
    with _Shards(out) as shards:
        for group in groups(listed(inputs[KEPT])):
            _read(config, inputs[KEPT], group, shards, seen)
            shards.end()
    seen.write(out)
    _finish(config, out, [out])


def read_files(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """The documents of some files, the input `shards` {path: file}. Raises BadText."""
    seen = _Seen()
    with _Shards(out) as shards:
        _read(config, inputs[KEPT], inputs["shards"], shards, seen)
    seen.write(out)


def join(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Join what `read_files` wrote to the folders of the input `parts`, in their order. Raises
    BadText."""
    parts = [part for _, part in sorted(inputs["parts"].items())]
    for split in SPLITS:
        found = [path for part in parts for path in sorted(part.glob(f"{split}.*.jsonl"))]
        for number, path in enumerate(found):
            link(path, out / f"{split}.{number:05d}.jsonl")
    _finish(config, out, parts)


def _read(
    config: Mapping[str, Any],
    folder: Path,
    files: Mapping[str, Path],
    shards: _Shards,
    seen: _Seen,
) -> None:
    """Write the documents of these files of the corpus in `folder`, whose bytes are checked."""
    found, name = config["found"], config["corpus"].partition("@")[0]
    wanted = _listed(folder, config)
    how = corpus_files.declared(config["corpus"], found)
    for path, file in files.items():
        if wanted.get(path) != digests.digest(file):
            raise BadText(f"{path} in the store is not the file that was fetched; {_again(config)}")
        for item in corpus_files.read(file, path, how):
            split = item if isinstance(item, LeftOut) else _split(item, path, found["split"])
            if isinstance(split, LeftOut):
                seen.first.setdefault(split.why, split.where)
                seen.tally.leave_out({"text": "", "source": name}, split.why)
            else:
                assert not isinstance(item, LeftOut)
                shards.add(split, item)
                seen.tally.keep(item)
                seen.licences[item["licence"][:MAX_LICENCE]] += 1


def _listed(folder: Path, config: Mapping[str, Any]) -> dict[str, FileDigest]:
    """The digests of the corpus's files. Raises BadText unless they are those of the plan."""
    said = untrusted_files.read(folder.resolve() / FILES_OF, MAX_LIST) or b"{}"
    try:
        wanted = bounds.parse(digests.FILES, said, MAX_LIST)
    except ValueError:
        wanted = {}
    if digests.sha256(wanted) != config["found"]["sha256"]:
        raise BadText(f"{folder} has no list of files with the plan's digest; {_again(config)}")
    return wanted


def _again(config: Mapping[str, Any]) -> str:
    corpus = config["corpus"]
    return f"`regatta corpus check {corpus}` says what is damaged, and what to do"


def _split(document: Document, path: str, rule: Mapping[str, Any]) -> str | LeftOut:
    """The split of a document in the file with this path."""
    if "share" not in rule:
        return SPLITS[matches(path, tuple(rule["validation"]))]
    group = document.get(rule.get("by") or "id")
    if not isinstance(group, str | int) or group == "":
        return LeftOut(WITHOUT, f"{path}, document {document['id']}")
    first = int.from_bytes(hashlib.sha256(str(group).encode(errors="replace")).digest()[:8])
    return SPLITS[first < rule["share"] * 2**64]


def _finish(config: Mapping[str, Any], out: Path, parts: list[Path]) -> None:
    """Write the report of all parts. Raises BadText if more documents are unusable than the author
    allows, and if a split is empty."""
    tally, seen = reports.summed(parts), [json.loads((part / SEEN).read_bytes()) for part in parts]
    first = {why: where for of in reversed(seen) for why, where in of["first"].items()}
    wrong = {why: count for why, count in tally.left_out.items() if why not in NO_FAULT}
    told = [f"{count:,} {why} (the first: {first[why]})" for why, count in sorted(wrong.items())]
    documents = sum(sums["documents"] for sums in tally.sources.values())
    if (bad := sum(wrong.values())) > config["most_left_out"] * documents:
        raise BadText(
            f"{bad:,} of {documents:,} documents of {config['corpus']} cannot be used, and "
            f"most_left_out is {percent(config['most_left_out'])}: {', '.join(told)}; mend them "
            "where the corpus is from, or allow more"
        )
    for split in SPLITS:
        if any(out.glob(f"{split}.*.jsonl")):
            continue
        if split == "validation" and config["found"]["split"].get("validation") == []:
            (out / "validation.00000.jsonl").touch()  # the author wants none
            continue
        raise BadText(
            f"no document of {config['corpus']} is in the {split} split; change `split` in the "
            "lab's corpora.yml"
        )
    tally.alarm_at_losses()
    tally.alarms += [f"Left out: {words}." for words in told]
    licences = sum((Counter(of["licences"]) for of in seen), Counter[str]())
    ordered = sorted(licences, key=lambda name: (-licences[name], name))
    for name in ordered[:MAX_LICENCES]:
        tally.counted[f"documents under {name}"] = licences[name]
    if others := sum(licences[name] for name in ordered[MAX_LICENCES:]):
        tally.counted["documents under other licences"] = others
    tally.write(out)
    for name in (SEEN, reports.SUMS):
        (out / name).unlink(missing_ok=True)
