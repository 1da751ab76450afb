"""Problems of a step as declared, and of its configuration at a point of its sweep: whether its
inputs have the right kind, and for `mix` and `train`, whose inputs the author names, which inputs a
configuration reads."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from runner.lib.problems import Said, near
from runner.lib.yaml_lines import Path
from runner.schema import devices
from runner.schema.devices import Kind
from runner.spec import initial_models
from runner.spec.data_steps import FUNCTION
from runner.spec.model_steps import drawn_too_many
from runner.spec.step_types import BUILT_IN, INIT, MIXTURE, SCORES, SETTINGS, TOKENS, TRAINS
from runner.spec.steps import Step

APART = "declare the point that is meant as a step of its own"
MAX_SIZE = 8_000_000  # bytes of all configurations together, because sweeps multiply them
MAX_INPUTS = 200_000  # inputs of all points of one step together
BYTES = 256  # ids of the byte tokenizer
GIVEN = ("tokenizer", "import")  # steps with a tokenizer of their own

# {input: the parts of its mixture}; empty for one store, None if unknown.
Inputs = Mapping[str, tuple[str, ...] | None]


def too_large(name: str, steps: Mapping[str, Step]) -> Said:
    """Where its sweep would multiply to more than an experiment may have."""
    step = steps[name]
    if (size := step.size) > MAX_SIZE:
        words = f"its points make {size:,} bytes of configuration; {MAX_SIZE:,} is the most"
        yield ("sweep",), words
    points = step.combinations
    whole = [of for key, of in step.inputs.items() if key != INIT and of in steps]
    taken = points * sum(steps[of].combinations for of in whole)
    if taken > MAX_INPUTS:
        words = (
            f"its {points:,} points take {taken:,} inputs together, and {MAX_INPUTS:,} is the "
            "most; a point takes all points of a sweep that it has as input"
        )
        yield ("inputs",), words


def of_step(name: str, steps: Mapping[str, Step], kinds: Mapping[str, Kind]) -> Said:
    """Problems of a step as declared, in a lab with these kinds of device."""
    step = steps[name]
    if (asked := step.resources) and (
        wrong := devices.misfit(kinds, asked, trains=step.do in TRAINS)
    ):
        yield ("resources", wrong[0]), wrong[1]
    if step.alias:
        first = next(one for one, other in steps.items() if other.alias == step.alias)
        if first != name:
            words = f"`{step.alias}` is the alias of `{first}` already; write another one"
            yield ("as",), words
        if (count := step.combinations) > 1:
            yield ("as",), f"an alias names one output, and this sweep makes {count:,}; take it out"
    for key, of in step.inputs.items():
        if of not in steps:
            yield ("inputs", key), _missing(of, steps)
    yield from initial_models.of_step(step, steps)
    if len(set(step.seeds)) != len(step.seeds):
        yield ("seeds",), "a seed is here twice, and each is one run; take one out"
    if not re.fullmatch(FUNCTION, step.do):
        yield from _of_built_in(step, steps)


def _of_built_in(step: Step, steps: Mapping[str, Step]) -> Said:
    if (built_in := BUILT_IN.get(step.do)) is None:
        known = ", ".join(f"`{one}`" for one in BUILT_IN)
        words = f"there is no built-in `{step.do}`; there are {known}, or write module:function"
        yield ("do",), words + near(step.do, BUILT_IN)
        return
    takes = (*built_in.inputs, *built_in.optional)
    for key, of in step.inputs.items():
        if key not in takes and not built_in.others:
            listed = " and ".join(f"`{one}`" for one in takes) or "no inputs"
            words = f"`{step.do}` takes {listed}{near(key, takes) or '; take this out'}"
            yield ("inputs", key), words
        elif (
            of in steps
            and steps[of].is_swept
            and key
            not in (
                *built_in.sweeps,
                *built_in.matched,
            )
        ):
            words = f"`{of}` is a sweep, and `{step.do}` takes one output here; {APART}"
            yield ("inputs", key), words
    for key in built_in.inputs:
        if key not in step.inputs and not _names_its_tokens(step):
            words = f"`{step.do}` needs the input `{key}`; write `inputs: {{{key}: STEP}}`"
            yield (), words


def _names_its_tokens(step: Step) -> bool:
    """Whether a `train` step says which input it trains on first, in its sweep or without one."""
    points = step.sweep if isinstance(step.sweep, list) else [step.sweep]
    return step.do == "train" and any("tokens" in one for one in (step.config, *points))


def _missing(of: str, steps: Mapping[str, Step]) -> str:
    """The message for an input that is no step, but may mean a point of a sweep."""
    step = of.partition("/")[0]
    if step != of and step in steps and steps[step].is_swept:
        return f"`{of}` would be one point of `{step}`, and an input is a whole step; {APART}"
    return f"there is no step `{of}`{near(step, steps) or '; declare it, or name another'}"


def of_config(
    step: Step,
    config: Mapping[str, Any],
    steps: Mapping[str, Step],
    lost: Collection[Path] = (),
) -> Said:
    """Problems of a built-in's configuration at a point of its sweep, with all defaults filled in,
    or of its readable parts, without the places `lost`."""
    yield from _unfit(step, config, steps)
    if step.do == "train":
        yield from _of_conversations(step, config, steps)
        yield from _of_vocabulary(step, config, steps)
    models = step.inputs.get("models", "")
    if step.do == "generate" and config.get("chats") and not _may_chat(models, steps):
        words = f"`{models}` is not trained on conversations, so it has no chat template; "
        yield ("config", "chats"), words + "name a model that is, or write `prompts`"
    if step.do == "classify" and (maker := steps.get(step.inputs.get("model", ""))):
        own = maker.config.get("own")
        if isinstance(own, Mapping) and own.get("model"):
            words = f"`{step.inputs['model']}` trains the own model `{own['model']}`, whose hidden "
            yield ("inputs", "model"), f"{words}states the lab does not know; name another model"
    if step.do in CHECKS:
        yield from CHECKS[step.do](
            config, {key: _parts(steps.get(of)) for key, of in step.inputs.items()}, lost
        )


def _parts(step: Step | None) -> tuple[str, ...] | None:
    """The parts of the mixture that a step makes; empty if a built-in makes no mixture."""
    if step is None or step.do not in BUILT_IN:
        return None
    return tuple(step.inputs) if step.do == "mix" else ()


def _unfit(step: Step, config: Mapping[str, Any], steps: Mapping[str, Step]) -> Said:
    """Inputs of a kind that the step does not take."""
    taker = BUILT_IN[step.do]
    takes = {**taker.inputs, **taker.optional}
    any_other = () if "data" in config.get("own", {}) else taker.others
    for key in sorted(read_by(step.do, config, step.inputs)):
        maker = steps.get(of := step.inputs[key])
        wanted = takes.get(key, any_other)
        makes = BUILT_IN[maker.do].makes if maker and maker.do in BUILT_IN else None
        if maker and makes is None and SCORES in wanted:
            words = f"`{of}` is own code, and only what the lab measures is a score"
            yield ("inputs", key), f"{words}; name an `evaluate` or a `benchmark` step"
        if not wanted or makes is None or makes in wanted:
            continue
        makers = " or ".join(f"`{name}`" for name, one in BUILT_IN.items() if one.makes in wanted)
        instead = f"name a step that does {makers}"
        if SCORES not in wanted:
            instead += ", or own code that makes one"
        if not makers:
            instead = "name own code that makes them"
        if makes == MIXTURE and TOKENS in wanted:
            instead = "name what it mixes instead"
        yield (
            ("inputs", key),
            f"the step `{of}` makes {makes}, and `{step.do}` takes {' or '.join(wanted)} here; "
            + instead,
        )


def _of_conversations(step: Step, config: Mapping[str, Any], steps: Mapping[str, Step]) -> Said:
    """Conversations that the model cannot hold, and labels that they do not have."""
    loss_on, length = config.get("loss_on"), config.get("model", {}).get("seq_len")
    for key in sorted(read_by("train", config, step.inputs) - {INIT, SETTINGS}):
        maker = steps.get(of := step.inputs[key])
        if maker is None or maker.do not in BUILT_IN or "data" in config.get("own", {}):
            continue
        if maker.do != "conversations":
            if loss_on:
                words = f"it is for conversations, and `{of}` makes {BUILT_IN[maker.do].makes}"
                yield ("config", "loss_on"), f"{words}; take it out"
            continue
        most = maker.config.get("max_tokens")
        if isinstance(length, int) and isinstance(most, int) and most > length:
            words = f"conversations of `{of}` have up to {most:,} tokens (max_tokens), and seq_len "
            yield ("config", "model", "seq_len"), f"{words}is {length:,}; make it as long"
        labels = maker.config.get("labels")
        known = ("assistant", *(labels if isinstance(labels, list) else ()))
        for label in loss_on or ():
            if label not in known:
                words = f"`{of}` has no label `{label}`; add it to its `labels`"
                yield ("config", "loss_on"), words


def _of_vocabulary(step: Step, config: Mapping[str, Any], steps: Mapping[str, Step]) -> Said:
    """Tokens that the model may have no rows for."""
    rows, own = config.get("model", {}).get("vocab_size"), config.get("own", {})
    if not isinstance(rows, int) or own.get("model"):
        return
    at = ("config", "model", "vocab_size")
    read = [step.inputs[key] for key in sorted(read_by("train", config, step.inputs) - {INIT})]
    makers = {of: _tokenizing(of, steps) for of in read}
    if rows < BYTES and not any(maker and maker.do in GIVEN for maker in makers.values()):
        yield at, f"{rows} rows are too few: the byte tokenizer has ids up to {BYTES - 1}"
        return
    for of, maker in () if own.get("data") else makers.items():
        most = maker.config.get("vocab_size") if maker and maker.do == "tokenize" else None
        if isinstance(most, int) and most > rows:
            words = f"`{of}` has a vocabulary of up to {most:,} tokens, and the model has {rows:,} "
            yield at, f"{words}rows; write `vocab_size: {most}`"
            return


def _tokenizing(of: str, steps: Mapping[str, Step]) -> Step | None:
    """The step that decides the tokenizer of a token store; None if it is not known."""
    for _ in steps:  # no chain is longer, and one that goes round is refused elsewhere
        maker = steps.get(of)
        if maker is None or maker.is_swept:
            return None
        trains = maker.do == "tokenize" and maker.config.get("tokenizer", "byte") != "given"
        if trains or maker.do not in ("mix", "tokenize", "conversations"):
            return maker
        first = next(iter(maker.inputs.values()), "")
        of = first if maker.do == "mix" else maker.inputs.get("tokenizer", "")
    return None


def _may_chat(model: str, steps: Mapping[str, Step]) -> bool:
    """Whether the model that a step makes may have a chat template."""
    waiting, seen = [model], set[str]()
    while waiting:
        step = steps.get(name := waiting.pop())
        if step is None or step.do not in BUILT_IN or step.do in ("conversations", "import"):
            return True
        if step.do == "train" and name not in seen:
            waiting += step.inputs.values()
        seen.add(name)
    return False


def read_by(do: str, config: Mapping[str, Any], inputs: Collection[str]) -> set[str]:
    """The inputs that a step reads with this configuration."""
    if do != "train" or "data" in config.get("own", {}):
        return set(inputs)  # own data functions may read any
    named = {phase.get("tokens") for phase in _phases(config)}
    return {name for name in inputs if name in (_first(config), INIT, SETTINGS) or name in named}


def _first(config: Mapping[str, Any]) -> Any:
    """The input that a `train` step trains on from its first step."""
    return config.get("tokens", "tokens")


def _phases(config: Mapping[str, Any]) -> list[Any]:
    return [phase for phase in config.get("train", {}).get("phases", []) if isinstance(phase, dict)]


def _tokenized(config: Mapping[str, Any], inputs: Inputs, lost: Collection[Path]) -> Said:
    if ("source",) not in lost and (config.get("source") is None) != ("text" in inputs):
        yield (), "`tokenize` needs the input `text` or a `source`, and not both; write one of them"
    if str(config.get("source")).endswith(".parquet"):
        yield ("config", "source"), "a text is a UTF-8 file; `conversations` reads Parquet"
    if ("tokenizer",) not in lost and (config.get("tokenizer") == "given") != (
        "tokenizer" in inputs
    ):
        yield (), "`tokenizer: given` and the input `tokenizer` go together; write both"


def _conversed(config: Mapping[str, Any], inputs: Inputs, lost: Collection[Path]) -> Said:
    if ("source",) not in lost and (config.get("source") is None) != ("conversations" in inputs):
        words = "`conversations` needs a `source` or the input `conversations`, and not both"
        yield (), f"{words}; write one of them"


def _mixed(config: Mapping[str, Any], inputs: Inputs, lost: Collection[Path]) -> Said:
    if len(inputs) < 2:
        words = "a mixture has two inputs at least; name another, or use the one as it is"
        yield ("inputs",), words
    if "weights" in config:
        weights = {**config["weights"], **{place[-1]: 1.0 for place in lost}}
        yield from _weighed(weights, tuple(inputs), ("config", "weights"), "an input")


def _joined(_: Mapping[str, Any], inputs: Inputs, __: Collection[Path]) -> Said:
    if len(inputs) < 2:
        yield ("inputs",), "two texts at least are joined; name another, or use the one as it is"


def _trained(config: Mapping[str, Any], inputs: Inputs, lost: Collection[Path]) -> Said:
    first = now = _first(config)
    if first not in inputs or first == INIT:
        yield from _no_store(("config", "tokens"), first, inputs)
    for number, phase in enumerate(_phases(config)):
        at: Path = ("config", "train", "phases", number)
        now = phase.get("tokens") or now
        if phase.get("tokens") and (now not in inputs or now == INIT):
            yield from _no_store((*at, "tokens"), now, inputs)
        elif now == "tokens" != first:
            words = f"the first steps train on `{first}`, and a later phase cannot go to `tokens`"
            yield (*at, "tokens"), f"{words}; name that input otherwise"
        parts = inputs.get(now)
        if "weights" in phase and parts is not None and not lost:
            yield from _weighed(phase["weights"], parts, (*at, "weights"), f"a part of `{now}`")


def _no_store(at: Path, name: str | None, inputs: Inputs) -> Said:
    if name == INIT:
        yield at, f"`{INIT}` is a model and not a token store; name another input"
    elif name:
        yield at, f"there is no input `{name}`{near(name, inputs) or '; add it'}"


def _asked(config: Mapping[str, Any], _: Inputs, lost: Collection[Path]) -> Said:
    if lost:
        return
    chats = config.get("chats", ())
    count = len(config["prompts"]) + len(chats) + config["held_out"]
    if not count and config["file"] is None:
        words = "there is nothing to continue; write `prompts`, `file`, `held_out` or `chats`"
        yield ("config", "prompts"), words
    for number, messages in enumerate(chats):
        if messages[-1]["role"] == "assistant":
            words = "there is nothing to answer; end it with a message of the user"
            yield ("config", "chats", number), words
    if words := drawn_too_many(count, len(config["seeds"]), config["tokens"]):
        yield ("config", "tokens"), words


def _labelled(config: Mapping[str, Any], _: Inputs, lost: Collection[Path]) -> Said:
    if not lost and sum(config[key] is not None for key in ("rule", "function", "ask")) != 1:
        yield ("config",), "`label` needs a `rule`, a `function` or `ask`; write one of them"


def _classified(config: Mapping[str, Any], inputs: Inputs, lost: Collection[Path]) -> Said:
    if not lost and {"model", "tokens"} & inputs.keys() != (
        {"model", "tokens"} if config["ridge"] else set()
    ):
        yield ("inputs",), "`ridge` and the inputs `model` and `tokens` go together; write all"


def _selected(config: Mapping[str, Any], inputs: Inputs, lost: Collection[Path]) -> Said:
    if lost:
        return
    bounds = config["least"] is not None or config["most"] is not None
    if bounds == (config["fraction"] is not None):
        words = "`select` needs a `fraction`, or the bounds `least` and `most`; write one of them"
        yield ("config",), words
    elif ("scores" in inputs) != (bounds or not config["random"]):
        if "scores" in inputs:
            words = "a fraction by chance reads no scores; take this out"
            yield ("inputs", "scores"), words
        else:
            words = "`select` needs the input `scores`; write `inputs: {scores: STEP}`, or "
            yield ("inputs",), f"{words}`random: true` with a `fraction`"
    if bounds and not config["random"] and config["by"] == "bytes":
        yield ("config", "by"), "it says what `fraction` counts, and there are bounds; take it out"


def _compared(_: Mapping[str, Any], inputs: Inputs, __: Collection[Path]) -> Said:
    if not inputs:
        words = "there is nothing to compare; write `inputs: {scores: evaluate}`, or more of them"
        yield ("inputs",), words


def _weighed(weights: Mapping[str, float], names: tuple[str, ...], at: Path, what: str) -> Said:
    for name in weights:
        if name not in names:
            yield (*at, name), f"`{name}` is not {what}{near(name, names) or '; take it out'}"
    for name in names:
        if name not in weights:
            yield at, f"`{name}` has no weight; write one, or take it out of the mixture"


def _decontaminated(config: Mapping[str, Any], inputs: Inputs, lost: Collection[Path]) -> Said:
    if ("tasks",) not in lost and not config.get("tasks") and "held_out" not in inputs:
        words = (
            "there is nothing to look for; write `tasks: [humaneval]`, other tasks, or the input"
        )
        yield (), f"{words} `held_out`"


CHECKS: Mapping[str, Callable[[Mapping[str, Any], Inputs, Collection[Path]], Said]] = {
    "tokenize": _tokenized,
    "conversations": _conversed,
    "mix": _mixed,
    "join": _joined,
    "train": _trained,
    "generate": _asked,
    "compare": _compared,
    "label": _labelled,
    "classify": _classified,
    "select": _selected,
    "decontaminate": _decontaminated,
}
