"""Corpora, as the lab's `corpora.yml` declares them (`runner.schema.lab_config`): where the files
of each are, how they are read, under which licence, and which documents are held out. An operator
fetches them (`regatta corpus fetch`), because jobs have no network. A plan names a corpus by the
digest of its files."""

import hashlib
import re
from functools import cache
from typing import Annotated, Any, Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from engine.config.fields import refusal
from runner.lib.base_record import Record, Sha256
from runner.lib.bounds import Count
from runner.lib.canonical_json import to_json

NAME = r"[a-z0-9][a-z0-9.+_-]{0,63}@[A-Za-z0-9][A-Za-z0-9.+~:_-]{0,39}"
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]

Format = Literal["jsonl", "parquet", "warc", "html", "text", "tokenizer"]
TOKENIZER_FILE = "tokenizer.json"  # as Hugging Face's `tokenizers` writes it
FILES = {  # of each format, by default
    "jsonl": ("**/*.jsonl", "**/*.jsonl.gz", "**/*.jsonl.zst"),
    "parquet": ("**/*.parquet",),
    "warc": ("**/*.warc", "**/*.warc.gz"),
    "html": ("**/*.html", "**/*.htm"),
    "text": ("**/*.txt",),
    "tokenizer": (TOKENIZER_FILE,),
}
FILES_OF = "files.json"  # the list of a corpus's files in the store
MAX_LIST = 32 << 20  # bytes of it
FIELDS = ("text", "id", "url", "source", "licence")  # of a document


def _form(key: str, words: str) -> PydanticCustomError:
    """An error about a key that does not go with another one."""
    return PydanticCustomError("form", "{words}", {"key": key, "words": words})


def _licence(written: str) -> str:
    try:
        return str(canonicalize_license_expression(written))
    except InvalidLicenseExpression:
        raise refusal(
            "`{licence}` is no SPDX expression; write one such as CC-BY-SA-4.0, "
            "`MIT OR Apache-2.0`, or LicenseRef-NAME for a licence that SPDX does not list",
            licence=written,
        ) from None


def _pattern(written: str) -> str:
    try:
        re.compile(written)
    except re.error as error:
        raise refusal(
            "`{pattern}` is no regular expression: {error}", pattern=written, error=str(error)
        ) from None
    return written


Licence = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_licence)]
Glob = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Globs = Annotated[tuple[Glob, ...], Field(max_length=1000)]
Field_ = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Split(Record):
    """Which documents are held out: those of named files, or a share of all."""

    validation: Globs | None = None  # files whose documents are held out
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    by: Field_ | None = None  # the field that keeps documents together; the id by default

    @model_validator(mode="after")
    def _one_of_them(self) -> "Split":
        if (self.validation is None) == (self.share is None):
            raise _form("share", "write either it or `validation`, the files that are held out")
        if self.by is not None and self.share is None:
            raise _form("by", "it goes with `share`; take it out")
        return self


class Fetched(Record):
    """What `regatta corpus fetch` found."""

    sha256: Sha256  # over the files' relative paths, sizes and digests
    files: Count
    bytes: Count


class Read(Record):
    """How the files of a corpus become documents: what a step needs to know of it."""

    format: Format
    licence: Licence  # of every document that does not name its own
    fields: dict[Literal["text", "id", "url", "source", "licence"], Field_] = Field(default={})
    starts: Annotated[str, AfterValidator(_pattern)] | None = None  # of `text`: a document's line
    split: Split = Split(share=1 / 32)

    @model_validator(mode="after")
    def _fits(self) -> "Read":
        if self.fields and self.format not in ("jsonl", "parquet"):
            raise _form("fields", "only jsonl and parquet have fields; take it out")
        if self.starts is not None and self.format != "text":
            raise _form("starts", "it is for `format: text`; take it out")
        by = self.split.by
        if by not in (None, *FIELDS) and self.format not in ("jsonl", "parquet"):
            raise _form("split", f"its documents have no field `{by}`; write `by: id`")
        return self


class Corpus(Read):
    """One entry of `corpora.yml`."""

    where: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    about: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    files: Globs = ()  # those of FILES by default
    without: Globs = ()
    package: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]{1,99}$")] | None = None
    fetched: Fetched | None = None

    def takes(self, path: str) -> bool:
        """Whether the file with this path, relative to `where`, belongs to it."""
        return matches(path, self.files or FILES[self.format]) and not matches(path, self.without)

    def read(self) -> dict[str, Any]:
        """What a plan's step keeps of it, besides the digest."""
        return self.model_dump(mode="json", include=set(Read.model_fields), exclude_none=True)


def matches(path: str, globs: tuple[str, ...]) -> bool:
    """Whether a relative path matches one of these: `*` is within a name, `**/` any folders."""
    return any(re.fullmatch(_translated(glob), path) for glob in globs)


_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@cache
def _translated(glob: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    return "".join(_PARTS.get(part) or re.escape(part) for part in parts)


def digest(found: dict[str, Any], split: str) -> str:
    """What identifies a split of a corpus: over its files, the rules by which they are read, and
    the split's name. `found`: what a plan keeps of the corpus."""
    return hashlib.sha256(to_json({"corpus": found, "split": split})).hexdigest()


def folder(sha256: str) -> str:
    """The folder in the store of the corpus whose files have this digest."""
    return f"corpora/{sha256}"
