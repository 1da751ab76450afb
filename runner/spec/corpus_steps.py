"""The configuration of the step that makes a text of a corpus, and how plans show corpora."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field
from rich.filesize import decimal

from engine.config.schema import Config
from runner.lib.format import many
from runner.lib.problems import near
from runner.schema.corpora import NAME, Corpus
from runner.schema.record import PlannedStep


class CorpusText(Config):
    """Makes a text of a corpus that the lab has fetched. Each document has `id`, `source`,
    `licence` and `text`, and `url` if the corpus knows it."""

    corpus: Annotated[str, Field(pattern=f"^{NAME}$")] = Field(
        description="name@version of an entry of the lab's .github/regatta/corpora.yml; "
        "`regatta corpus ls` lists them"
    )
    most_left_out: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01,
        description="the share of documents that may be unusable: not UTF-8, no JSON object, "
        "without a text, or too long. They are counted and left out; beyond this share, the step "
        "fails",
    )
    found: dict[str, Any] = Field(
        default={},
        description="digest, size, licence and format of the corpus; filled in by the plan",
    )


def resolved(name: str, known: Mapping[str, Corpus], do: str = "corpus") -> dict[str, Any] | str:
    """What a plan keeps of the corpus with this name, for a step that does `corpus` or `tokenizer`;
    or why it cannot be used, and what to do."""
    if (corpus := known.get(name)) is None:
        words = f"the lab has no corpus `{name}`{near(name, known)}"
        return f"{words}; `regatta corpus ls` lists them, and `regatta corpus add` adds one"
    takes = "tokenizer" if corpus.format == "tokenizer" else "corpus"
    if do != takes:
        words = f"`{name}` is not a {do} but a {takes}"
        return f"{words}; write {{do: {takes}, config: {{corpus: {name}}}}}"
    if corpus.fetched is None:
        first = f"`apt-get install {corpus.package}` and " if corpus.package else ""
        return (
            f"`{name}` was not fetched, so that no digest names its files; whoever runs the lab "
            f"runs {first}`regatta corpus fetch {name}`"
        )
    return {**corpus.fetched.model_dump(), **corpus.read()}


def found_of(step: PlannedStep) -> dict[str, Any] | None:
    """What the plan keeps of the corpus or tokenizer that the step takes by name; None if it takes
    none. Own code may have a key of this name, too."""
    return (step.config.get("found") or None) if step.do in ("corpus", "tokenizer") else None


def of_plan(steps: Mapping[str, PlannedStep]) -> dict[str, dict[str, Any]]:
    """{name@version: what the plan keeps of it}, of all corpora that these steps read."""
    takes = (step.config for step in steps.values() if found_of(step))
    return {config["corpus"]: config["found"] for config in takes}


def told(steps: Mapping[str, PlannedStep]) -> Iterator[str]:
    """A line for each corpus that these steps read: licence, size and digest."""
    for name, of in of_plan(steps).items():
        size = f"{many(of['files'], 'file')}, {decimal(of['bytes'])}"
        yield f"{name}: {of['licence']}, {size}, SHA-256 {of['sha256'][:16]}…"
