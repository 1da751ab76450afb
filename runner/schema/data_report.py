"""What a step that changes a text reports of it: `report.json` in its output. Pages, the terminal
and later steps read this form; own steps may write it, too."""

from pydantic import Field

from runner.lib.base_record import Record
from runner.lib.bounds import Count, Word, Words
from runner.lib.format import percent

REPORT = "report.json"
MAX_BYTES = 1 << 20
MAX_SOURCES, MAX_REASONS, MAX_ALARMS = 200, 200, 50
NO_SOURCE = "no source named"  # of documents that have no key `source`
OTHER_SOURCES = "all other sources"  # beyond MAX_SOURCES, those with the fewest bytes


class OfSource(Record):
    """The documents of one source. Bytes are UTF-8 bytes of their texts."""

    documents: Count = 0
    bytes: Count = 0
    kept_documents: Count = 0
    kept_bytes: Count = 0


class DataReport(Record):
    """What came in and what was kept, by source, and why the rest was left out."""

    sources: dict[Word, OfSource] = Field(max_length=MAX_SOURCES + 1)
    # {reason: documents}; each document has one reason, the first that applies.
    left_out: dict[Word, Count] = Field(default={}, max_length=MAX_REASONS)
    # {what, in words: how often}, for anything else that the step counts.
    counted: dict[Word, Count] = Field(default={}, max_length=MAX_REASONS)
    # What a person should check before they use the output, a sentence each.
    alarms: tuple[Words, ...] = Field(default=(), max_length=MAX_ALARMS)

    @property
    def total(self) -> OfSource:
        """All sources together."""
        sums = {key: sum(getattr(one, key) for one in self.sources.values()) for key in KEYS}
        return OfSource(**sums)


KEYS = tuple(OfSource.model_fields)


def kept(of: OfSource) -> str:
    """`812 of 1,000 documents kept (81.2 %)`."""
    share = f" ({percent(of.kept_documents / of.documents)})" if of.documents else ""
    return f"{of.kept_documents:,} of {of.documents:,} documents kept{share}"
