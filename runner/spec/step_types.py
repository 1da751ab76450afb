"""The built-in steps: name, configuration, inputs, output and function of each. Light: the
functions (in the rooms of `runner.worker`) are imported only to run a step.

A step's function is called as `function(config, inputs, out)`: its configuration, {input: folder}
(for an input that is a whole sweep {input: {label: folder}}), and an empty folder for its output.
Texts are folders with `train.jsonl` and `validation.jsonl`, one {"text": …} per line. If the step
calls own functions, it gets them as a fourth argument, {module:function: callable}.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from runner.schema import metrics
from runner.spec import benchmarks
from runner.spec.benchmarks import Benchmark, Decontaminate
from runner.spec.conversation_steps import Conversations
from runner.spec.corpus_steps import CorpusText
from runner.spec.data_steps import Extract, Filter, GivenTokenizer, Join, Map, Mix, Tokenize
from runner.spec.duplicate_steps import Dedup
from runner.spec.model_steps import Compare, Export, Generate, Import
from runner.spec.selection_steps import Classify, Label, Select
from runner.spec.training_steps import Evaluate, Train, TrainOwn, Tune, TuneOwn


class OverShards(NamedTuple):
    """How several processes run a step on a text of many shards. Each field is a module:function,
    called like a step's own function; the named inputs are added to the step's."""

    each: str  # processes some shards: `shards` {name: file}, and `first`
    join: str  # joins the parts: `parts` {number: folder}, and `first`
    first: str | None = None  # runs before all others, which get its output as the input `first`
    when: tuple[str, tuple[str, ...]] | None = None  # a key, and the values for which it pays off
    of: str = "text"  # the input with the shards; KEPT: the files of a corpus


# What steps make and take, as errors name it. Own code may make and take anything.
TEXT, TOKENS, MIXTURE = "a text", "a token store", "a mixture of token stores"
CHATS, ROWS = "a store of conversations", "conversations"
MODEL, SCORES, COMPLETIONS = "a trained model", "scores", "completions"
IMPORTED, EXPORTED = "an imported model", "an exported model"
COMPARISON = "a comparison"
TASK_SCORES = "scores of tasks"
ATTRIBUTES, LABELS = "attributes of a text", "labelled documents"
TOKENIZER = "a tokenizer"
TUNED = "tuned settings"
STORES = (TOKENS, MIXTURE, CHATS)
MODELS = (MODEL, IMPORTED)


TASKED = ("benchmark", "decontaminate")  # steps whose configuration may name tasks
KEPT = "kept"  # the input under which a step finds what the store keeps for it by digest
SOURCED = ("tokenize", "conversations")  # steps whose configuration may name a text
INIT = "init"  # the input, and its section, of a `train` step that continues a model
SETTINGS = "settings"  # the input of a `train` step with what a `tune` step found
TRAINS = ("train", "tune")  # steps that train by the keys of an arm
IN_STAGES = "runner.worker.models.train_in_stages:train"  # what the gang of a pipeline runs
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
    each="runner.worker.texts.tokens:encode_shards",
    join="runner.worker.texts.tokens:join",
    first="runner.worker.texts.tokens:learn",
    when=("tokenizer", ("bpe", "given")),  # for bytes, encoding is faster than reading
)
FILTERED = OverShards(
    "runner.worker.texts.filter_and_join:filter_shards",
    "runner.worker.texts.filter_and_join:join_filtered",
)
TAKEN = OverShards(
    "runner.worker.texts.corpus:read_files", "runner.worker.texts.corpus:join", of=KEPT
)
EXTRACTED = OverShards(
    "runner.worker.texts.extract:extract_shards", "runner.worker.texts.extract:join"
)
MAPPED = OverShards(
    "runner.worker.texts.mapping:map_shards", "runner.worker.texts.filter_and_join:join"
)
CLASSIFIED = OverShards(
    "runner.worker.selection.classify:score_shards",
    "runner.worker.selection.classify:join",
    first="runner.worker.selection.classify:learn",
)
SELECTED = OverShards(
    "runner.worker.selection.select:keep_shards",
    "runner.worker.selection.select:join",
    first="runner.worker.selection.select:mark",
)
DECONTAMINATED = OverShards(
    "runner.worker.selection.decontaminate:match_shards",
    "runner.worker.selection.decontaminate:join",
    first="runner.worker.selection.decontaminate:learn",
)
DEDUPLICATED = OverShards(
    "runner.worker.texts.dedup:sketch_shards", "runner.worker.texts.dedup:join"
)

BUILT_IN = {
    "corpus": BuiltIn(
        *("runner.worker.texts.corpus:make", CorpusText, TEXT), inputs={}, over=TAKEN
    ),
    "tokenize": BuiltIn(
        *("runner.worker.texts.tokens:tokenize", Tokenize, TOKENS),
        inputs={},
        optional={"text": (TEXT,), "tokenizer": (TOKENS, IMPORTED, TOKENIZER)},
        over=ENCODED,
    ),
    "tokenizer": BuiltIn(
        "runner.worker.texts.tokens:take_tokenizer", GivenTokenizer, TOKENIZER, inputs={}
    ),
    "filter": BuiltIn(
        *("runner.worker.texts.filter_and_join:filter_documents", Filter, TEXT),
        inputs={"text": (TEXT,)},
        over=FILTERED,
    ),
    "dedup": BuiltIn(
        *("runner.worker.texts.dedup:deduplicate", Dedup, TEXT),
        inputs={"text": (TEXT,)},
        over=DEDUPLICATED,
    ),
    "decontaminate": BuiltIn(
        *("runner.worker.selection.decontaminate:decontaminate", Decontaminate, TEXT),
        inputs={"text": (TEXT,)},
        optional={"held_out": (TEXT,)},
        over=DECONTAMINATED,
    ),
    "join": BuiltIn(
        "runner.worker.texts.filter_and_join:join_texts", Join, TEXT, inputs={}, others=(TEXT,)
    ),
    "map": BuiltIn(
        *("runner.worker.texts.mapping:map_documents", Map, TEXT),
        inputs={"text": (TEXT,)},
        over=MAPPED,
    ),
    "extract": BuiltIn(
        *("runner.worker.texts.extract:extract", Extract, TEXT),
        inputs={"text": (TEXT,)},
        over=EXTRACTED,
    ),
    "label": BuiltIn(
        *("runner.worker.selection.label:label", Label, LABELS),
        inputs={"text": (TEXT,)},
    ),
    "classify": BuiltIn(
        *("runner.worker.selection.classify:classify", Classify, ATTRIBUTES),
        inputs={"text": (TEXT,), "labels": (LABELS,)},
        optional={"model": MODELS, "tokens": STORES},
        over=CLASSIFIED,
        measures=lambda _: (metrics.AUC, metrics.CALIBRATION),
    ),
    "select": BuiltIn(
        *("runner.worker.selection.select:select", Select, TEXT),
        inputs={"text": (TEXT,)},
        optional={"scores": (ATTRIBUTES,)},
        over=SELECTED,
    ),
    "conversations": BuiltIn(
        *("runner.worker.texts.conversations:make", Conversations, CHATS),
        inputs={"tokenizer": (TOKENS,)},
        optional={"conversations": (ROWS,)},
    ),
    "mix": BuiltIn("runner.worker.texts.mix:mix", Mix, MIXTURE, inputs={}, others=(TOKENS,)),
    "train": BuiltIn(
        *("runner.worker.models.train:train", Train, MODEL),
        inputs={"tokens": STORES},
        optional={INIT: MODELS, SETTINGS: (TUNED,)},
        others=STORES,
        matched=(INIT, SETTINGS),
    ),
    "tune": BuiltIn(
        *("runner.worker.scores.tune:tune", Tune, TUNED),
        inputs={"tokens": STORES},
    ),
    "evaluate": BuiltIn(
        *("runner.worker.scores.evaluate:evaluate", Evaluate, SCORES),
        inputs={"models": MODELS, "tokens": STORES},
        sweeps=("models",),
        measures=lambda _: (metrics.BPB,),  # `runner.spec.measured` adds what depends on its inputs
    ),
    "generate": BuiltIn(
        *("runner.worker.scores.generate:generate", Generate, COMPLETIONS),
        inputs={"models": MODELS, "tokens": STORES},
        sweeps=("models",),
    ),
    "benchmark": BuiltIn(
        *("runner.worker.scores.benchmark:benchmark", Benchmark, TASK_SCORES),
        inputs={"models": MODELS, "tokens": STORES},
        sweeps=("models",),
        measures=benchmarks.measures,
    ),
    "export": BuiltIn(
        *("runner.worker.models.exchange:export_models", Export, EXPORTED),
        inputs={"models": MODELS, "tokens": STORES},
        others=(SCORES, TASK_SCORES),
        sweeps=("models",),
    ),
    "compare": BuiltIn(
        *("runner.worker.scores.compare:compare", Compare, COMPARISON),
        inputs={},
        others=(SCORES, TASK_SCORES, ATTRIBUTES),
    ),
    "import": BuiltIn("runner.worker.models.exchange:import_model", Import, IMPORTED, inputs={}),
}


def logical(do: str) -> str:
    """The name of a step's function in plans: `regatta.train` for a built-in, wherever it is; for
    own code its module:function."""
    return f"{LOGICAL}{do}" if do in BUILT_IN else do


def place_of(function: str) -> str:
    """The module:function with this logical name."""
    do = function.removeprefix(LOGICAL)
    return BUILT_IN[do].function if function == logical(do) and do in BUILT_IN else function


def parts_of(function: str, *, staged: bool = False) -> tuple[str, ...]:
    """The dotted names of all functions that run a built-in step; empty for own code. `staged`: it
    trains with a pipeline."""
    do = function.removeprefix(LOGICAL)
    if do not in BUILT_IN or function != logical(do):
        return ()
    of, over = BUILT_IN[do].function, BUILT_IN[do].over
    all_of_them = [of, over.each, over.join, over.first] if over else [of]
    all_of_them += [IN_STAGES] if staged else []
    return tuple(one.replace(":", ".") for one in all_of_them if one)


def schema_of(do: str, config: Mapping[str, Any]) -> type[BaseModel]:
    """The schema of a built-in's configuration."""
    own = config.get("own")
    if do in TRAINS and isinstance(own, Mapping) and own.get("model") is not None:
        return TrainOwn if do == "train" else TuneOwn
    return BUILT_IN[do].config


# The arguments of own functions; see `runner.worker.models.plugins`.
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
    if do in ("map", "label"):
        return ((str(config["function"]), ("document",)),) if config.get("function") else ()
    named = config.get("own", {}) if do in TRAINS else {}
    # Its configuration may have problems, which are reported elsewhere.
    known = {key: named[key] for key in CALLED if isinstance(named.get(key), str)}
    return tuple((function, CALLED[key]) for key, function in known.items())


def own_of(do: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The same functions, each once."""
    return tuple(dict.fromkeys(function for function, _ in calls_of(do, config)))
