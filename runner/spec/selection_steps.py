"""The configurations of the steps that judge documents and choose some of them."""

from typing import Annotated, Literal

from pydantic import Field

from engine.config.schema import Config

SEED = Field(ge=0, lt=2**31)


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
