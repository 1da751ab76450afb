"""The inputs of built-in steps: whether they are what the step takes; and of those that `mix` and
`train` take under names of the author's choosing, which a configuration reads, and what is wrong
with how it speaks of them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from runner.lib import yaml_lines
from runner.lib.problems import near
from runner.spec.step_types import BUILT_IN, MIXTURE, TOKENS

# {input: the parts of the mixture that it is}; empty for one store, None for what nobody knows yet.
Inputs = Mapping[str, tuple[str, ...] | None]
Complaints = Iterator[tuple[yaml_lines.Path, str]]  # where in the step, and what


def _mixed(config: Mapping[str, Any], inputs: Inputs) -> Complaints:
    if len(inputs) < 2:
        yield (
            ("inputs",),
            "a mixture has two inputs at least; name another, or use the one as it is",
        )
    yield from _weighed(config["weights"], tuple(inputs), ("config", "weights"), "an input")


def _trained_on(config: Mapping[str, Any], inputs: Inputs) -> Complaints:
    now = "tokens"
    for number, phase in enumerate(config["train"].get("phases", [])):
        at: yaml_lines.Path = ("config", "train", "phases", number)
        now = phase.get("tokens", now)
        if now not in inputs and "tokens" in phase:
            yield (*at, "tokens"), f"there is no input `{now}`{near(now, inputs)}"
        parts = inputs.get(now)
        if "weights" in phase and parts is not None:
            yield from _weighed(phase["weights"], parts, (*at, "weights"), f"a part of `{now}`")


def unfit(do: str, config: Mapping[str, Any], made: Mapping[str, tuple[str, str]]) -> Complaints:
    """Of `made` {input: (step, what it does)} those that are not what the built-in `do` takes."""
    taker = BUILT_IN[do]
    takes = {**taker.inputs, **taker.optional}
    any_other = () if do == "train" and "data" in config["own"] else taker.others
    for key in sorted(read_by(do, config, made)):
        of, maker = made[key]
        wanted = takes.get(key, any_other)
        makes = BUILT_IN[maker].makes if maker in BUILT_IN else ""
        if not wanted or not makes or makes in wanted:
            continue
        makers = " or ".join(f"`{name}`" for name, one in BUILT_IN.items() if one.makes in wanted)
        instead = f"name a step that does {makers}, or own code that makes one"
        if makes == MIXTURE and TOKENS in wanted:
            instead = "name what it mixes instead"
        yield (
            ("inputs", key),
            f"the step `{of}` makes {makes}, and `{do}` takes {' or '.join(wanted)} here; "
            + instead,
        )


def read_by(do: str, config: Mapping[str, Any], inputs: Collection[str]) -> set[str]:
    """Those of a step's inputs that it reads with this configuration."""
    if do != "train" or "data" in config["own"]:
        return set(inputs)  # an own data function may read any
    named = {phase.get("tokens") for phase in config["train"].get("phases", [])}
    return {name for name in inputs if name == "tokens" or name in named}


def _weighed(
    weights: Mapping[str, float], names: tuple[str, ...], at: yaml_lines.Path, what: str
) -> Complaints:
    for name in weights:
        if name not in names:
            yield (*at, name), f"`{name}` is not {what}{near(name, names)}"
    for name in names:
        if name not in weights:
            yield at, f"`{name}` has no weight; write one, or take it out of the mixture"


# Of these steps an input may have any name.
CHECKS: Mapping[str, Callable[[Mapping[str, Any], Inputs], Complaints]] = {
    "mix": _mixed,
    "train": _trained_on,
}
