"""The configurations of the steps that make and change texts and token stores."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from engine.config.phases import InputName, Weights
from engine.config.schema import Config, Count, refusal
from engine.data import filter_rules
from runner.schema.corpora import NAME, TOKENIZER_FILE

FUNCTION = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"


def _function(value: str) -> str:
    if not re.fullmatch(FUNCTION, value):
        raise refusal(
            "`{value}` is no module:function of the experiment's folder; `model:Transformer` is "
            "Transformer in model.py",
            value=value,
        )
    return value


Function = Annotated[
    str, AfterValidator(_function), WithJsonSchema({"type": "string", "pattern": f"^{FUNCTION}$"})
]


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        raise refusal(
            "it is not a regular expression: {why}", why=str(error) or type(error).__name__
        ) from error
    return value


Pattern = Annotated[str, AfterValidator(_pattern)]  # a regular expression


def _rule(value: str) -> str:
    if value not in filter_rules.NAMES:
        raise refusal(
            "`{value}` is not a rule; write gopher, repetition or c4, or one of their rules: "
            "{names}",
            value=value,
            names=", ".join(filter_rules.RULES),
        )
    return value


RuleName = Annotated[
    str,
    AfterValidator(_rule),
    WithJsonSchema({"type": "string", "enum": list(filter_rules.NAMES)}),
]


class Tokenize(Config):
    """Turns texts into token stores, `train` and `validation`."""

    source: str | None = Field(
        default=None,
        min_length=1,
        description="in the place of an input: stdlib (Python's own standard library), lab-2026-11 "
        "(which ships with the lab), or a UTF-8 text file of the experiment's folder",
    )
    tokenizer: Literal["byte", "bpe", "given"] = Field(
        default="byte",
        description="a token is a byte; a byte-level BPE trained on the spot; or that of the input "
        "`tokenizer`: a token store, an imported model or a `tokenizer` step",
    )
    vocab_size: Count | None = Field(
        default=None, validate_default=True, description="bpe only: most tokens it may have"
    )
    special_tokens: tuple[Annotated[str, Field(min_length=2, max_length=64)], ...] = Field(
        default=(),
        max_length=100,
        strict=False,  # YAML gives a list, the field is a tuple
        exclude_if=lambda special: not special,  # old plans have no such key
        description="bpe only: what a chat template writes as one token, such as <|im_end|>; in "
        "texts these are ordinary words",
    )
    sha256: dict[str, str] = Field(
        default={}, description="of the source's splits; filled in by the plan"
    )

    @field_validator("special_tokens")
    @classmethod
    def _a_bpe_has_special_ones(cls, special: tuple[str, ...], info: ValidationInfo) -> Any:
        if special and info.data.get("tokenizer") in ("byte", "given"):
            raise refusal("only a bpe that is trained here takes special_tokens; remove them")
        if twice := [one for one in special if special.count(one) > 1 or one == "<|endoftext|>"]:
            raise refusal("the tokenizer has `{twice}` already; remove it here", twice=twice[0])
        return special

    @field_validator("vocab_size")
    @classmethod
    def _a_bpe_has_a_size(cls, size: int | None, info: ValidationInfo) -> int | None:
        kind = info.data.get("tokenizer")
        if kind == "bpe" and size is None:
            raise refusal("a bpe needs a vocab_size; write one, 512 for a start")
        if kind == "byte" and size is not None:
            raise refusal("bytes have no vocab_size to choose; remove it, or write tokenizer: bpe")
        if kind == "given" and size is not None:
            raise refusal("the given tokenizer has its own vocab_size; remove this one")
        return size


class GivenTokenizer(Config):
    """Takes a tokenizer from a file of the experiment's folder, or by its name in the lab."""

    corpus: Annotated[str, Field(pattern=f"^{NAME}$")] | None = Field(
        default=None,
        exclude_if=lambda name: name is None,  # old plans have no such key
        description="name@version of an entry of the lab's .github/regatta/corpora.yml with "
        "`format: tokenizer`",
    )
    file: str | None = Field(
        default=None,
        validate_default=True,
        min_length=1,
        description="in its place, a file as Hugging Face's `tokenizers` writes it; tokenizer.json "
        "if both are left out",
    )
    end_of_document: str | None = Field(
        default=None,
        min_length=1,
        description="the token after each document, such as </s>; none if left out",
    )
    sha256: str | None = Field(default=None, description="of the file; filled in by the plan")
    found: dict[str, Any] = Field(
        default={},
        exclude_if=lambda found: not found,
        description="digest, size and licence of the entry; filled in by the plan",
    )

    @field_validator("file")
    @classmethod
    def _one_place(cls, file: str | None, info: ValidationInfo) -> str | None:
        name = info.data.get("corpus")
        if file and name:
            raise refusal("a tokenizer comes from one place; write `file` or `corpus`")
        return file if file or name else TOKENIZER_FILE


class Mix(Config):
    """Mixes token stores, whose names the author chooses."""

    weights: Weights = Field(
        description="each input's share of the tokens to train on; their sum does not matter"
    )
    most_epochs: dict[InputName, Annotated[float, Field(gt=0)]] = Field(
        default={},
        exclude_if=lambda most: not most,  # old plans have no such key
        description="how often a run may pass over an input; what would be beyond goes to the "
        "other inputs, by their weights",
    )

    @field_validator("most_epochs")
    @classmethod
    def _of_its_inputs(cls, most: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        weights = info.data.get("weights", most)
        if unknown := sorted(most.keys() - weights.keys()):
            raise refusal(
                "`{name}` has no weight; write one of {names}",
                name=unknown[0],
                names=", ".join(weights),
            )
        return most


class Filter(Config):
    """Keeps the documents of a text that pass."""

    least_characters: Count | None = Field(default=None, description="documents as long pass")
    most_characters: Count | None = Field(default=None, description="documents no longer pass")
    matching: Pattern | None = Field(
        default=None, description="a regular expression that is found in what passes"
    )
    rules: tuple[RuleName, ...] = Field(
        default=(),
        max_length=100,
        strict=False,  # YAML gives a list, the field is a tuple
        exclude_if=lambda rules: not rules,  # old plans have no such key
        description="rules of the field, in the order in which they are applied: gopher, "
        "repetition, c4, or single ones of them",
    )
    sources: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(
        default=(),
        max_length=200,
        strict=False,  # YAML gives a list, the field is a tuple
        exclude_if=lambda sources: not sources,  # old plans have no such key
        description="documents of these sources pass; of any, if left out",
    )


class Join(Config):
    """Joins texts to one, in the order of their names as inputs."""


class Map(Config):
    """Applies a function to each document of a text."""

    function: Function = Field(
        description="module:function of the experiment's folder, from a document to a document, or "
        "to None, which leaves it out"
    )


class Extract(Config):
    """Makes text of web pages: documents whose text is HTML."""

    extractor: Literal["trafilatura", "resiliparse"] = Field(
        default="trafilatura",
        description="the library that finds what a page is about: trafilatura, for pages of the "
        "web; or resiliparse, which reads documentation better and takes a tenth of the time",
    )
    to: Literal["text", "markdown"] = Field(
        default="text",
        description="text, or Markdown with headings, lists, tables, code and emphasis, which "
        "trafilatura alone writes. Neither has the targets of links",
    )

    @field_validator("to")
    @classmethod
    def _of_its_extractor(cls, to: str, info: ValidationInfo) -> str:
        if to == "markdown" and info.data.get("extractor") == "resiliparse":
            raise refusal("resiliparse writes no Markdown; write extractor: trafilatura")
        return to
