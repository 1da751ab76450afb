"""The configurations of the steps that leave out what a text has elsewhere."""

from typing import Annotated

from pydantic import Field

from engine.config.schema import Config

Share = Annotated[float, Field(gt=0, le=1)]


class Dedup(Config):
    """Leaves out duplicates, and near-duplicates of documents that are kept."""

    similarity: Share | None = Field(
        default=0.8,
        description="the Jaccard similarity, in shingles of three words, from which on a document "
        "is a near-duplicate of a kept one; null leaves out only equal texts",
    )
    alarm_above: Share = Field(
        default=0.5,
        description="an alarm for each source of 20 documents or more that loses a larger share of "
        "them",
    )
