"""Runs the layers of a model one after the other. Layers with the same parameters are stacked
(`engine.config.shapes.stack`), also where they see different positions; whole periods of a pattern
of layers run in a loop, which is compiled once, and what is left of it behind."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax

from engine.config.schema import LayerKind, ModelConfig
from engine.config.shapes import stack

Params = dict[str, Any]
Layer = Callable[[jax.Array, Params], jax.Array]


def run(
    config: ModelConfig,
    layers: dict[LayerKind, Layer],
    stacks: Params,
    x_TD: jax.Array,
    unroll: bool,
) -> jax.Array:
    """x through all layers. `layers` says what a layer of each kind computes, from x and its own
    parameters; `stacks` has the parameters of each stack. Returns (T, D)."""
    period, times = config.periods
    count = Counter(map(stack, period))

    def several(x_TD: jax.Array, kinds: Iterable[LayerKind], of: Params) -> jax.Array:
        waiting = {name: iter(one) for name, one in of.items()}
        for kind in kinds:
            x_TD = layers[kind](x_TD, next(waiting[stack(kind)]))
        return x_TD

    def body(x_TD: jax.Array, turn: Params) -> tuple[jax.Array, None]:
        of = {name: [one] if count[name] == 1 else each(one) for name, one in turn.items()}
        return several(x_TD, period, of), None

    if times:
        turns = {
            name: jax.tree.map(partial(_by_turns, times, n), stacks[name])
            for name, n in count.items()
        }
        x_TD, _ = jax.lax.scan(body, x_TD, turns, unroll=unroll)
    rest = config.kinds[times * len(period) :]
    behind = {name: each(one, times * count[name]) for name, one in stacks.items()} if rest else {}
    return several(x_TD, rest, behind)


def each(stacked: Params, start: int = 0) -> list[Params]:
    """The parameters of each layer of a stack, from number `start` on."""
    layers = len(jax.tree.leaves(stacked)[0])
    return [jax.tree.map(lambda x, n=n: x[n], stacked) for n in range(start, layers)]


def _by_turns(times: int, count: int, x: jax.Array) -> jax.Array:
    """(times, count, …) of the first times · count layers; (times, …) if count is 1."""
    first = x if len(x) == times * count else x[: times * count]
    return first if count == 1 else first.reshape(times, count, *x.shape[1:])
