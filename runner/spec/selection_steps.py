"""The configurations of the steps that judge documents and choose some of them."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from engine.config.schema import Config, Count, refusal
from runner.spec.data_steps import Function, Pattern

SEED = Field(ge=0, lt=2**31)


MAX_LABELLED = 100_000  # documents
EXAMPLE = "{example}"  # where a prompt has the document


class Ask(Config):
    """How a language model is asked for labels. The operator asks it, with `regatta label`, at an
    endpoint that speaks OpenAI's chat completions. A job never does."""

    prompt: str = Field(
        max_length=20_000, description="what it is asked, with `{example}` for the document"
    )
    model: str = Field(min_length=1, max_length=100, description="the endpoint's name of the model")
    replies: Literal["words", "digits"] = Field(
        default="words",
        description="how a reply ends: `Final Score: Great`, Good, Okay, Poor or Useless, which is "
        "5 to 1; or `Final score: 0` to 5. Any other is −1, no label",
    )
    max_tokens: Count = Field(
        description="the most tokens, of prompts and replies together, that this step may use"
    )
    max_dollars: float = Field(ge=0, description="the most that this step may cost")
    characters: Count = Field(
        default=8_000, le=100_000, description="of a document only so many are sent"
    )
    reply_tokens: Count = Field(default=256, le=10_000, description="the most tokens of a reply")
    temperature: float = Field(default=0.1, ge=0, le=2, description="of the reply")

    @field_validator("prompt")
    @classmethod
    def _has_the_document(cls, prompt: str) -> str:
        if prompt.count(EXAMPLE) != 1:
            raise refusal("a prompt has `{example}` once, where the document is", example=EXAMPLE)
        return prompt


class Label(Config):
    """Labels a sample of the train split: by a rule, which is then called a rule, or by asking a
    language model."""

    documents: int = Field(
        ge=1, le=MAX_LABELLED, description="of the sample; all if the text has fewer"
    )
    seed: Annotated[int, SEED] = Field(default=0, description="of the sample")
    rule: Pattern | None = Field(
        default=None,
        min_length=1,
        description="a regular expression: the label is 1 where it is found in the text, else 0",
    )
    function: Function | None = Field(
        default=None,
        description="in its place, module:function of the experiment's folder, from a document (an "
        "object with `text` and its other keys) to its label, a number; None is no label",
    )
    ask: Ask | None = Field(default=None, description="in their place, a language model")


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


class TransformerClassifier(Config):
    """A small transformer encoder that is trained from scratch to predict labels. It reads the
    first `seq_len` tokens of a document."""

    hidden_dim: Count = Field(default=128, le=4096, description="width; of the MLP it is 3 times")
    num_layers: Count = Field(default=2, le=64, description="blocks")
    num_heads: Count = Field(default=4, description="heads; hidden_dim / num_heads is even")
    seq_len: Count = Field(default=256, le=8192, description="tokens of a document")
    vocab_size: int = Field(
        default=4096, ge=257, le=2**17, description="of a BPE that learns from the same documents"
    )
    epochs: Count = Field(default=4, le=1000, description="how often each document is seen")
    train_batch_size: Count = Field(default=32, le=2**16, description="documents in a step")
    learning_rate: float = Field(
        default=1e-3, gt=0, description="AdamW's peak; it rises for a tenth, then falls as a cosine"
    )
    weight_decay: float = Field(default=0.1, ge=0, description="decoupled")

    @field_validator("num_heads")
    @classmethod
    def _heads_fit(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("hidden_dim")
        if width is not None and (width % heads or width // heads % 2):
            raise refusal(f"hidden_dim {width} / num_heads {heads} is not an even whole number")
        return heads


class RidgeClassifier(Config):
    """Ridge regression of labels on embeddings of documents: the means of the last hidden states of
    the model that is the input `model`, with the tokenizer of the token store `tokens`."""

    penalty: float = Field(
        default=1e-3,
        gt=0,
        description="of the squared norm, per document; features have variance 1",
    )
    seq_len: Count = Field(
        default=256, le=8192, description="tokens of a document; no more than the model's"
    )


class Classify(Config):
    """Learns from labelled documents and gives each document of a text a score, where higher is
    better, and the probability of a positive label. Labels are split 80/10/10 by a hash of the id:
    to learn from, to turn scores into probabilities, and to test. The test gives `labels/auc` and
    `labels/calibration`, with standard errors by the bootstrap over documents."""

    transformer: TransformerClassifier | None = Field(
        default=None, description="the classifier: a small transformer encoder"
    )
    ridge: RidgeClassifier | None = Field(
        default=None, description="the classifier: ridge regression on a model's embeddings"
    )
    linear: LinearClassifier | None = Field(
        default=None,
        validate_default=True,
        description="the classifier: hashed n-grams of words; if all are left out, this one with "
        "its defaults",
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
    def _one_classifier(
        cls, linear: LinearClassifier | None, info: ValidationInfo
    ) -> LinearClassifier | None:
        others = [info.data.get(name) for name in ("transformer", "ridge")]
        if not {"transformer", "ridge"} <= info.data.keys():
            return linear  # one has a problem, which is reported
        if sum(one is not None for one in (linear, *others)) > 1:
            raise refusal("a step has one classifier; write `linear`, `transformer` or `ridge`")
        return linear if any(others) else linear or LinearClassifier()


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
