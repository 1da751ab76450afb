"""Counts what a step on a text keeps and leaves out, and writes `report.json`
(`runner.schema.data_report`). The counts of several processes add up, so that the report is the
same for any number of them."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from engine.data.documents import Document
from runner.lib.canonical_json import to_json
from runner.lib.format import percent
from runner.schema import data_report
from runner.schema.data_report import KEYS, NO_SOURCE, OTHER_SOURCES, REPORT, DataReport, OfSource

MAX_NAME = 100  # characters of a source
SUMS = "report.sums.json"  # what a part writes: all of its sources


class Tally:
    """What came in and what was kept so far."""

    def __init__(self) -> None:
        self.sources: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.left_out: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.alarms: list[str] = []

    def keep(self, before: Document, after: Document | None = None) -> None:
        """Count a document that is kept; `after` has its text if the step changed it."""
        sizes = {"bytes": size(before), "kept_bytes": size(after or before)}
        self.add(source_of(before), documents=1, kept_documents=1, **sizes)

    def leave_out(self, document: Document, reason: str) -> None:
        """Count a document that is left out, for one reason."""
        self.add(source_of(document), documents=1, bytes=size(document))
        self.left_out[reason] += 1

    def add(self, source: str, **counts: int) -> None:
        """Add to the counts of a source, by the names of `OfSource`."""
        self.sources[source].update(counts)

    def write_sums(self, out: Path) -> None:
        """Write the counts of one part, for `finish`."""
        found = {
            "sources": self.sources,
            "left_out": self.left_out,
            "counted": self.counted,
        }
        (out / SUMS).write_bytes(to_json(found))

    def report(self) -> DataReport:
        """The report. Beyond MAX_SOURCES, the sources with the fewest bytes count together."""
        ordered = sorted(self.sources, key=lambda name: (-self.sources[name]["bytes"], name))
        few, others = ordered[: data_report.MAX_SOURCES], ordered[data_report.MAX_SOURCES :]
        found = {name: _of(self.sources[name]) for name in sorted(few)}
        if others:
            found[OTHER_SOURCES] = _of(sum((self.sources[name] for name in others), Counter[str]()))
        return DataReport(
            sources=found,
            left_out=dict(sorted(self.left_out.items())),
            counted=dict(sorted(self.counted.items())),
            alarms=tuple(self.alarms[: data_report.MAX_ALARMS]),
        )

    def write(self, out: Path) -> None:
        """Write `report.json`."""
        (out / REPORT).write_bytes(self.report().canonical())

    def alarm_at_losses(self, above: float = 1.0, least: int = 1) -> None:
        """An alarm for each source of which nothing is left, and for each of at least `least`
        documents that lost more than the share `above` of them."""
        for name, sums in sorted(self.sources.items()):
            documents = sums["documents"]
            lost = documents - sums["kept_documents"]
            if lost == documents or (documents >= least and lost > above * documents):
                self.alarms.append(
                    f"The source {name} lost {lost:,} of its {documents:,} documents "
                    f"({percent(lost / documents)}). Check why before you use this text."
                )


def _of(sums: Counter[str]) -> OfSource:
    return OfSource(**{key: sums[key] for key in KEYS})


def size(document: Document) -> int:
    """The UTF-8 bytes of a document's text."""
    return len(document["text"].encode())


def source_of(document: Document) -> str:
    """The source of a document, as reports name it."""
    source = document.get("source")
    if not isinstance(source, str) or not source:
        return NO_SOURCE
    return source[:MAX_NAME].encode(errors="replace").decode()


def finish(out: Path, parts: Iterable[Path], *, alarms: bool = True) -> None:
    """Write the report of all parts, from what `Tally.write_sums` wrote to their folders. It has an
    alarm for each source of which nothing is left, unless that is what the step is for."""
    tally = summed(parts)
    if alarms:
        tally.alarm_at_losses()
    tally.write(out)
    (out / SUMS).unlink(missing_ok=True)


def summed(parts: Iterable[Path]) -> Tally:
    """The counts of all parts together."""
    tally = Tally()
    for part in parts:
        found = json.loads((part / SUMS).read_bytes())
        for name, sums in found["sources"].items():
            tally.sources[name].update(sums)
        tally.left_out.update(found["left_out"])
        tally.counted.update(found["counted"])
    return tally
