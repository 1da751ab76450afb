"""The configurations of the steps that judge documents and choose some of them."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from engine.config.schema import Config, Count, refusal
from runner.spec.data_steps import Function

SEED = Field(ge=0, lt=2**31)


MAX_LABELLED = 100_000  # documents


class Label(Config):
    """Labels a sample of the train split by a rule: a regular expression, or a function. What it
    labels is called labelled by a rule."""

    documents: int = Field(
        ge=1, le=MAX_LABELLED, description="of the sample; all if the text has fewer"
    )
    seed: Annotated[int, SEED] = Field(default=0, description="of the sample")
    rule: str | None = Field(
        default=None,
        min_length=1,
        description="a regular expression: the label is 1 where it is found in the text, else 0",
    )
    function: Function | None = Field(
        default=None,
        description="in its place, module:function of the experiment's folder, from a document (an "
        "object with `text` and its other keys) to its label, a number; None is no label",
    )

    @field_validator("rule")
    @classmethod
    def _a_pattern(cls, rule: str | None) -> str | None:
        try:
            re.compile(rule or "")
        except re.error as error:
            raise refusal("it is not a regular expression: {why}", why=str(error)) from error
        return rule


class LinearClassifier(Config):
    """Logistic regression on hashed n-grams of words; ordinal if there are several labels."""

    words: int = Field(default=2, ge=1, le=5, description="n-grams of up to so many words")
    buckets: int = Field(
        default=2**20, description="weights, a power of two; each n-gram is hashed to one of them"
    )
    l2: float = Field(default=1e-5, gt=0, description="weight of the squared norm of the weights")

    @field_validator("buckets")
    @classmethod
    def _a_power_of_two(cls, buckets: int) -> int:
        if buckets not in (powers := [2**n for n in range(8, 25)]):
            raise refusal(f"{buckets} is not a power of two from {powers[0]} to {powers[-1]}")
        return buckets


class Classify(Config):
    """Learns from labelled documents and gives each document of a text a score, where higher is
    better, and the probability of a positive label. Labels are split 80/10/10 by a hash of the id:
    to learn from, to turn scores into probabilities, and to test. The test gives `labels/auc` and
    `labels/calibration`, with standard errors by the bootstrap over documents."""

    linear: LinearClassifier | None = Field(
        default=None,
        validate_default=True,
        description="the classifier: hashed n-grams of words; with its defaults if left out",
    )
    positive: float | None = Field(
        default=None,
        description="labels from here on are positive; if left out, those in the upper half of "
        "their range",
    )
    characters: Count = Field(
        default=10_000,
        le=2**18,
        description="of a document only so many, from its beginning, count",
    )
    seed: Annotated[int, SEED] = Field(
        default=0, description="of what is drawn: parameters, and the documents of the bootstrap"
    )

    @field_validator("linear")
    @classmethod
    def _a_classifier(cls, linear: LinearClassifier | None) -> LinearClassifier | None:
        return linear or LinearClassifier()


class Select(Config):
    """Keeps the documents of a text with the highest scores, in the order of the text."""

    attribute: str = Field(
        default="score",
        min_length=1,
        description="the name of the score among the attributes of the input `scores`",
    )
    fraction: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="the share to keep, exactly: of n documents the nearest whole number to "
        "fraction · n",
    )
    least: float | None = Field(
        default=None, description="in the place of fraction: documents with this score or more"
    )
    most: float | None = Field(
        default=None, description="in the place of fraction: documents with this score or less"
    )
    by: Literal["documents", "bytes"] = Field(
        default="documents",
        description="what fraction counts; with bytes of text it keeps whole documents, from the "
        "highest score down, until the next one would be too much",
    )
    random: bool = Field(
        default=False,
        description="keep as many documents (or bytes) as without it, but drawn by chance: the arm "
        "that shows what the scores are worth",
    )
    seed: Annotated[int, SEED] = Field(
        default=0, description="of the chance, and of the order among equal scores"
    )
    validation: Literal["whole", "selected"] = Field(
        default="whole",
        description="the validation split: unchanged, or selected like the train split",
    )
