"""Configurations of the built-in steps that ask models, let them leave and take them in."""

from typing import Annotated, Any, Literal

from pydantic import Field

from engine.config.schema import Config, Count

HUB_NAME = r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$"

Text = Annotated[str, Field(min_length=1, max_length=20_000)]


MAX_PROMPTS, MAX_PROMPT = 1000, 20_000  # of a step; characters
MAX_DRAWN = 1_000_000  # tokens that a step draws from one model


class Message(Config):
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"] = Field(description="who says it")
    content: Text = Field(description="what is said")


Messages = Annotated[tuple[Message, ...], Field(min_length=1, max_length=1000, strict=False)]


class Generate(Config):
    """Has trained models continue prompts. They are chosen before the run: written here, in a file,
    or beginnings of the validation text. A model with a chat template answers conversations."""

    # YAML gives a list, the field is a tuple: so these are not strict.
    prompts: tuple[Text, ...] = Field(
        default=(), max_length=MAX_PROMPTS, strict=False, description="texts to continue"
    )
    file: str | None = Field(
        default=None,
        min_length=1,
        description="a file of the experiment's folder with more of them: .txt has one on each "
        'line, .jsonl has {"prompt": …} on each line; the plan reads it',
    )
    held_out: Annotated[int, Field(ge=0, le=MAX_PROMPTS)] = Field(
        default=0,
        description="so many more are the beginnings of the first documents of the validation text "
        "or, if it has fewer documents, of its first windows",
    )
    held_out_tokens: Count = Field(default=32, description="the length of such a beginning")
    chats: tuple[Messages, ...] = Field(
        default=(),
        max_length=MAX_PROMPTS,
        strict=False,
        exclude_if=lambda chats: not chats,  # old plans have no such key
        description="conversations to answer, each as its messages, such as [{role: user, content: "
        "Hello}]; for models that were trained on conversations or imported with a chat template",
    )
    tokens: Count = Field(default=64, description="maximum length of a completion")
    temperature: float = Field(
        default=1.0, ge=0, le=100, description="0: always the most likely token"
    )
    top_k: Count | None = Field(
        default=None, description="draw only among so many most likely tokens"
    )
    top_p: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="draw only among the fewest most likely tokens that have this probability "
        "together",
    )
    stop: tuple[Text, ...] = Field(
        default=(), strict=False, description="texts that end a completion"
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(
        default=(0,),
        min_length=1,
        max_length=100,
        strict=False,
        description="a completion of each prompt for each seed",
    )


def drawn_too_many(prompts: int, seeds: int, tokens: int) -> str:
    """Why a step must not draw so much; empty if it may."""
    if prompts <= MAX_PROMPTS and prompts * seeds * tokens <= MAX_DRAWN:
        return ""
    return (
        f"{prompts:,} prompts × {seeds:,} seeds × {tokens:,} tokens are too many; at most "
        f"{MAX_PROMPTS:,} prompts and {MAX_DRAWN:,} tokens; take some out"
    )


class Export(Config):
    """Writes trained models as folders that Hugging Face's `transformers` loads, each with a model
    card."""

    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="float32 is exact; bfloat16 rounds and takes half the space"
    )
    licence: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")] | None = Field(
        default=None, description="the Hub's name of the model's licence, such as apache-2.0"
    )
    upload: Annotated[str, Field(pattern=HUB_NAME, max_length=96)] | None = Field(
        default=None,
        description="the repository of the Hugging Face Hub, such as my-lab/my-model, to which the "
        "lab uploads it after the execution; needs HF_TOKEN in the lab's environment",
    )
    about: dict[str, Any] = Field(
        default={}, description="what the models are made from; filled in by the plan"
    )


class Import(Config):
    """Takes in a public model from the lab's store, where `regatta import` has put it.
    That command prints this step."""

    model: Text = Field(max_length=200, description="its name, for readers")
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] = Field(
        description="the digest of its files"
    )
    seq_len: Count | None = Field(
        default=None,
        description="the tokens of a window; without it, as many as the model has positions",
    )


class Compare(Config):
    """Compares scores of models: a table and a chart with intervals. Each input is the output of a
    step that measured models."""

    metrics: tuple[Text, ...] = Field(
        default=(), strict=False, description="only these, such as eval/bpb; all if left out"
    )
