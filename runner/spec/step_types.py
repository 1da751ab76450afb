"""The built-in steps: name, configuration, inputs, output and function of each. Light: the
functions (`runner.worker.builtin`) are imported only to run a step.

A step's function is called as `function(config, inputs, out)`: its configuration, {input: folder}
(for an input that is a whole sweep {input: {label: folder}}), and an empty folder for its output.
Texts are folders with `train.jsonl` and `validation.jsonl`, one {"text": …} per line. If the step
calls own functions, it gets them as a fourth argument, {module:function: callable}.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
)

from engine.config.phases import Weights
from engine.config.schema import (
    ComputeConfig,
    Config,
    Count,
    EvalConfig,
    ModelConfig,
    TrainConfig,
    refusal,
)
from runner.schema import metrics
from runner.schema.own_model import Options, OwnModel
from runner.spec import benchmarks
from runner.spec.benchmarks import Benchmark
from runner.spec.conversation_steps import Conversations, Label
from runner.spec.model_steps import Compare, Export, Generate, Import

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
        description="a token is a byte; a byte-level BPE trained on the spot; or that of the token "
        "store or the imported model that is the input `tokenizer`",
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


class Mix(Config):
    """Mixes token stores, whose names the author chooses."""

    weights: Weights = Field(
        description="each input's share of the rows that are trained on; their sum does not matter"
    )


class Filter(Config):
    """Keeps the documents of a text that pass."""

    least_characters: Count | None = Field(default=None, description="documents as long pass")
    most_characters: Count | None = Field(default=None, description="documents no longer pass")
    matching: str | None = Field(
        default=None, description="a regular expression that is found in what passes"
    )


class Map(Config):
    """Applies a function to each document of a text."""

    function: Function = Field(
        description="module:function of the experiment's folder, from a document to a document, or "
        "to None, which leaves it out"
    )


class Own(Config):
    """Own functions that replace the lab's, each as module:function of the experiment's folder.
    `runner.worker.builtin.plugins` says how they are called."""

    model: Function | None = Field(default=None, description="what is trained, and then scored")
    loss: Function | None = Field(default=None, description="what is minimised")
    optimizer: Function | None = Field(default=None, description="how parameters move")
    schedule: Function | None = Field(default=None, description="the learning rate of each step")
    data: Function | None = Field(default=None, description="which tokens a step sees")

    @model_serializer(mode="wrap")
    def _named(self, whole: SerializerFunctionWrapHandler) -> dict[str, str]:
        return {key: value for key, value in whole(self).items() if value is not None}


class Init(Config):
    """How training continues the model that is its input `init`."""

    moments: bool = Field(
        default=False,
        description="continue with the optimizer's moments, too; the step that trained the model "
        "needs `keep_moments: true`",
    )
    schedule: Literal["new", "continue"] = Field(
        default="new",
        description="new: the learning rates and the batches begin at step 1. continue: they are "
        "those of one run of all steps together, of which this step trains the last part",
    )
    steps: Count | None = Field(
        default=None, description="steps of the earlier part of a schedule; filled in by the plan"
    )
    fresh: tuple[str, ...] | None = Field(
        default=None,
        strict=False,
        description="parameters that the input lacks, which are drawn by the seed; filled in by "
        "the plan where it knows both models",
    )


class Train(Config):
    """Trains a model on a token store."""

    model: ModelConfig
    train: TrainConfig
    own: Own = Own()
    options: Options = Options()
    compute: ComputeConfig = ComputeConfig()
    seed: int = Field(default=0, ge=0, lt=2**31)
    loss_on: tuple[Label, ...] | None = Field(
        default=None,
        min_length=1,
        strict=False,  # YAML gives a list, the field is a tuple
        exclude_if=lambda labels: labels is None,  # old plans have no such key
        description="of conversations: the labels whose tokens are trained on; all that the "
        "assistant says if left out",
    )
    init: Init | None = Field(
        default=None,
        exclude_if=lambda init: init is None,  # old plans have no such key
        description="with an input `init`: how its model is continued",
    )

    @field_validator("own")
    @classmethod
    def _phases_are_heard(cls, own: Own, info: ValidationInfo) -> Own:
        phases = info.data["train"].phases if "train" in info.data else ()
        for key, named in (
            ("schedule", any(phase.schedule for phase in phases)),
            ("data", any(phase.changes_data for phase in phases)),
        ):
            if named and getattr(own, key):
                words = "phases change the {key}, which is own code's here; take one of the two out"
                raise refusal(words, key=key)
        return own

    @field_validator("options")
    @classmethod
    def _somebody_reads_them(cls, options: Options, info: ValidationInfo) -> Options:
        if options.model_extra and info.data.get("own") == Own():
            words = "`options` are for functions of `own`, and the arm `{arm}` names none"
            raise refusal(words, **(info.context or {"arm": "here"}))
        return options


class TrainOwn(Train):
    """The same with an own model."""

    model: OwnModel  # type: ignore[assignment]  # no kind of ModelConfig


class Evaluate(EvalConfig):
    """Scores trained models: bits per byte on the validation tokens."""


class OverShards(NamedTuple):
    """How several processes run a step on a text of many shards. Each field is a module:function,
    called like a step's own function; the named inputs are added to the step's."""

    each: str  # processes some shards: `shards` {name: file}, and `first`
    join: str  # joins the parts: `parts` {number: folder}, and `first`
    first: str | None = None  # runs before all others, which get its output as the input `first`
    when: tuple[str, tuple[str, ...]] | None = None  # a key, and the values for which it pays off


# What steps make and take, as errors name it. Own code may make and take anything.
TEXT, TOKENS, MIXTURE = "a text", "a token store", "a mixture of token stores"
CHATS, ROWS = "a store of conversations", "conversations"
MODEL, SCORES, COMPLETIONS = "a trained model", "scores", "completions"
IMPORTED, EXPORTED = "an imported model", "an exported model"
COMPARISON = "a comparison"
TASK_SCORES = "scores of tasks"
STORES = (TOKENS, MIXTURE, CHATS)
MODELS = (MODEL, IMPORTED)


SOURCED = ("tokenize", "conversations")  # steps whose configuration may name a text
KEPT = "kept"  # the input under which a step finds what the store keeps for it by digest
INIT = "init"  # the input, and its section, of a `train` step that continues a model
LOGICAL = "regatta."  # prefix of logical names, which do not depend on where functions are


class BuiltIn(NamedTuple):
    function: str  # module:function; plans and fingerprints use `logical` instead
    config: type[BaseModel]
    makes: str
    inputs: Mapping[str, tuple[str, ...]]  # {input: the kinds it may have}
    optional: Mapping[str, tuple[str, ...]] = {}
    others: tuple[str, ...] = ()  # kinds of inputs that the author names; empty: there are none
    sweeps: tuple[str, ...] = ()  # the inputs that may be a whole sweep
    matched: tuple[str, ...] = ()  # inputs that may be a sweep, of which each point takes one
    over: OverShards | None = None
    # From its validated configuration, as in the plan, to the metrics that it measures of each of
    # its input `models`. Such a step writes `runner.schema.metrics.MEASURED`.
    measures: Callable[[Mapping[str, Any]], Iterable[str]] | None = None


ENCODED = OverShards(
    each="runner.worker.builtin.tokens:encode_shards",
    join="runner.worker.builtin.tokens:join",
    first="runner.worker.builtin.tokens:learn",
    when=("tokenizer", ("bpe", "given")),  # for bytes, encoding is faster than reading
)
FILTERED = OverShards(
    "runner.worker.builtin.texts:filter_shards", "runner.worker.builtin.texts:join_filtered"
)
MAPPED = OverShards("runner.worker.builtin.mapping:map_shards", "runner.worker.builtin.texts:join")

BUILT_IN = {
    "tokenize": BuiltIn(
        *("runner.worker.builtin.tokens:tokenize", Tokenize, TOKENS),
        inputs={},
        optional={"text": (TEXT,), "tokenizer": (TOKENS, IMPORTED)},
        over=ENCODED,
    ),
    "filter": BuiltIn(
        *("runner.worker.builtin.texts:filter_documents", Filter, TEXT),
        inputs={"text": (TEXT,)},
        over=FILTERED,
    ),
    "map": BuiltIn(
        *("runner.worker.builtin.mapping:map_documents", Map, TEXT),
        inputs={"text": (TEXT,)},
        over=MAPPED,
    ),
    "conversations": BuiltIn(
        *("runner.worker.builtin.conversations:make", Conversations, CHATS),
        inputs={"tokenizer": (TOKENS,)},
        optional={"conversations": (ROWS,)},
    ),
    "mix": BuiltIn("runner.worker.builtin.mix:mix", Mix, MIXTURE, inputs={}, others=(TOKENS,)),
    "train": BuiltIn(
        *("runner.worker.builtin.train:train", Train, MODEL),
        inputs={"tokens": STORES},
        optional={INIT: MODELS},
        others=STORES,
        matched=(INIT,),
    ),
    "evaluate": BuiltIn(
        *("runner.worker.builtin.evaluate:evaluate", Evaluate, SCORES),
        inputs={"models": MODELS, "tokens": STORES},
        sweeps=("models",),
        measures=lambda _: (metrics.BPB,),  # `runner.spec.measured` adds what depends on its inputs
    ),
    "generate": BuiltIn(
        *("runner.worker.builtin.generate:generate", Generate, COMPLETIONS),
        inputs={"models": MODELS, "tokens": STORES},
        sweeps=("models",),
    ),
    "benchmark": BuiltIn(
        *("runner.worker.builtin.benchmark:benchmark", Benchmark, TASK_SCORES),
        inputs={"models": MODELS, "tokens": STORES},
        sweeps=("models",),
        measures=benchmarks.measures,
    ),
    "export": BuiltIn(
        *("runner.worker.builtin.exchange:export_models", Export, EXPORTED),
        inputs={"models": MODELS, "tokens": STORES},
        others=(SCORES, TASK_SCORES),
        sweeps=("models",),
    ),
    "compare": BuiltIn(
        *("runner.worker.builtin.compare:compare", Compare, COMPARISON),
        inputs={},
        others=(SCORES, TASK_SCORES),
    ),
    "import": BuiltIn("runner.worker.builtin.exchange:import_model", Import, IMPORTED, inputs={}),
}


def logical(do: str) -> str:
    """The name of a step's function in plans: `regatta.train` for a built-in, wherever it is; for
    own code its module:function."""
    return f"{LOGICAL}{do}" if do in BUILT_IN else do


def place_of(function: str) -> str:
    """The module:function with this logical name."""
    do = function.removeprefix(LOGICAL)
    return BUILT_IN[do].function if function == logical(do) and do in BUILT_IN else function


def parts_of(function: str) -> tuple[str, ...]:
    """The dotted names of all functions that run a built-in step; empty for own code."""
    do = function.removeprefix(LOGICAL)
    if do not in BUILT_IN or function != logical(do):
        return ()
    of, over = BUILT_IN[do].function, BUILT_IN[do].over
    all_of_them = (of, over.each, over.join, over.first) if over else (of,)
    return tuple(one.replace(":", ".") for one in all_of_them if one)


def schema_of(do: str, config: Mapping[str, Any]) -> type[BaseModel]:
    """The schema of a built-in's configuration."""
    own = config.get("own")
    if do == "train" and isinstance(own, Mapping) and own.get("model") is not None:
        return TrainOwn
    return BUILT_IN[do].config


# The arguments of own functions; see `runner.worker.builtin.plugins`.
CALLED = {
    "model": ("config",),
    "loss": ("config", "logits", "targets"),
    "optimizer": ("config", "learning_rate"),
    "schedule": ("config", "step"),
    "data": ("config", "inputs", "seed"),
}


def calls_of(do: str, config: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The own functions that a step names, with the arguments of each."""
    if do not in BUILT_IN:
        return ((do, ("config", "inputs", "out")),)
    if do == "map":
        return ((str(config["function"]), ("document",)),) if "function" in config else ()
    named = config.get("own", {}) if do == "train" else {}
    return tuple((function, CALLED[key]) for key, function in named.items())


def own_of(do: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The same functions, each once."""
    return tuple(dict.fromkeys(function for function, _ in calls_of(do, config)))
