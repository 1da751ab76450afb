"""Cuts the forward and the backward pass of a chunk into programs, on the list of their operations
(the jaxpr): the forward pass; the part of the backward pass for inputs, which is what an input's
gradient depends on; and the part for weights, which is the rest. So nothing is computed in two of
them, except what follows from the parameters alone, such as their concatenation. An operation that
makes both gradients at once is in the part for inputs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.extend import core

Values = dict[int, jax.Array]  # what one program leaves to a later one, by a variable's number

# Operations that only hold a list of others. It is written out, because it may be for both parts.
HOLDERS = ("jit", "pjit", "closed_call", "checkpoint", "remat2")


class Passes(NamedTuple):
    """What is traced: the results of both passes."""

    y: Any  # of the forward pass
    dx: Any  # with all else that the part for inputs must make
    grads: Any  # of the parameters, that the part for weights makes


@dataclass(frozen=True, eq=False)
class Split:
    """The programs of one chunk, to be compiled. `params`, `early` and `late` are trees like those
    that it was traced with."""

    forward: list[Any]  # equations
    inputs: list[Any]
    weights: list[Any]
    follows: list[Any]  # from the parameters alone
    given: tuple[list[Any], list[Any], list[Any]]  # the variables of params, early and late
    constants: dict[Any, Any]
    results: Passes  # of variables
    numbers: dict[Any, int]
    kept: frozenset[Any]  # from the forward pass on
    passed: frozenset[Any]  # of these and of the inputs' part, to the weights' part

    def run_forward(self, params: Any, early: Any) -> tuple[Any, Values]:
        """y, and what the backward pass needs."""
        values = self._values(self.forward, (params, early))
        return _read(values, self.results.y), self._left(values, self.kept)

    def run_inputs(self, params: Any, kept: Values, late: Any) -> tuple[Any, Values]:
        """dx, and what the part for weights needs beside `kept`."""
        values = self._values(self.inputs, (params, None, late), kept)
        return _read(values, self.results.dx), self._left(values, self.passed - self.kept)

    def run_weights(self, params: Any, passed: Values) -> Any:
        """The gradients of the parameters. `passed` may have more than is needed."""
        return _read(self._values(self.weights, (params,), passed), self.results.grads)

    def run_backward(self, params: Any, kept: Values, late: Any) -> tuple[Any, Any]:
        """dx and the gradients, by one program."""
        values = self._values([*self.inputs, *self.weights], (params, None, late), kept)
        return _read(values, self.results.dx), _read(values, self.results.grads)

    def needed_late(self, kept: Values, passed: Values) -> Values:
        """What the part for weights reads of both."""
        numbers = {self.numbers[x] for x in self.passed}
        return {n: x for n, x in (kept | passed).items() if n in numbers}

    def _values(
        self, equations: list[Any], given: tuple[Any, ...], left: Values | None = None
    ) -> dict[Any, Any]:
        """Everything that these equations give."""
        values = dict(self.constants)
        for variables, tree in zip(self.given, given, strict=False):
            values |= zip(variables, jax.tree.leaves(tree), strict=False)
        values |= {x: left[n] for x, n in self.numbers.items() if left and n in left}
        read = [x for one in equations for x in one.invars] + jax.tree.leaves(self.results)
        return _evaluated([*_needed(self.follows, read), *equations], values)

    def _left(self, values: dict[Any, Any], which: frozenset[Any]) -> Values:
        return {self.numbers[x]: values[x] for x in which}


def split(passes: Callable[[Any, Any, Any], Passes], params: Any, early: Any, late: Any) -> Split:
    """Trace `passes(params, early, late)`, on arrays or jax.ShapeDtypeStruct, and cut it. `early`
    is what the forward pass has, `late` what comes for the backward pass."""
    leaves, tree = jax.tree.flatten((params, early, late))
    held, shapes = jax.make_jaxpr(
        lambda *x: passes(*jax.tree.unflatten(tree, x)), return_shape=True
    )(*leaves)

    def flat(*x: Any) -> list[Any]:
        first = dict(
            zip((*held.jaxpr.constvars, *held.jaxpr.invars), (*held.consts, *x), strict=True)
        )
        return _read(_evaluated(held.jaxpr.eqns, first, HOLDERS), held.jaxpr.outvars)

    closed = jax.make_jaxpr(flat)(*leaves)
    jaxpr = closed.jaxpr
    results = Passes(*jax.tree.unflatten(jax.tree.structure(shapes), jaxpr.outvars))
    one, two = (len(jax.tree.leaves(x)) for x in (params, (params, early)))
    given = jaxpr.invars[:one], jaxpr.invars[one:two], jaxpr.invars[two:]

    moving = {*given[1], *given[2]}  # what does not follow from the parameters
    for equation in jaxpr.eqns:
        if moving & _variables(equation.invars):
            moving.update(equation.outvars)
    follows = [x for x in jaxpr.eqns if not moving.intersection(x.outvars)]
    left = [x for x in jaxpr.eqns if moving.intersection(x.outvars)]
    parts: list[list[Any]] = []
    for wanted in results:
        parts.append(these := _needed(left, jax.tree.leaves(wanted)))
        known = {id(x) for x in these}
        left = [x for x in left if id(x) not in known]
    forward, inputs, weights = parts

    def reads(equations: list[Any], result: Any) -> set[Any]:
        """The variables that a part needs and does not make."""
        made = {x for equation in equations for x in equation.outvars}
        read = [x for equation in equations for x in equation.invars] + jax.tree.leaves(result)
        return (_variables(read) & moving) - made

    by_weights = reads(weights, results.grads)
    early_ones = {x for equation in forward for x in equation.outvars} | {*given[1]}
    made = (x for equation in jaxpr.eqns for x in equation.outvars)
    return Split(
        *(forward, inputs, weights, follows, given),
        dict(zip(jaxpr.constvars, closed.consts, strict=True)),
        results,
        {x: n for n, x in enumerate((*jaxpr.invars, *made))},
        frozenset((reads(inputs, results.dx) | by_weights) & early_ones),
        frozenset(by_weights),
    )


def _evaluated(
    equations: Iterable[Any], values: dict[Any, Any], holders: Iterable[str] = ()
) -> dict[Any, Any]:
    """`values` of variables, and those that the equations give. What `holders` hold is evaluated in
    their place."""
    for one in equations:
        given = _read(values, one.invars)
        if one.primitive.name in holders:
            inner = one.params["jaxpr"]
            jaxpr = getattr(inner, "jaxpr", inner)
            names = (*jaxpr.constvars, *jaxpr.invars)
            consts = getattr(inner, "consts", None) or ()
            first = dict(zip(names, (*consts, *given), strict=True))
            found = _read(_evaluated(jaxpr.eqns, first, holders), jaxpr.outvars)
        else:
            more = one.primitive.get_bind_params(one.params)
            with one.ctx.manager:
                found = one.primitive.bind(*given, **more)
            found = found if one.primitive.multiple_results else [found]
        values |= zip(one.outvars, found, strict=True)
    return values


def _read(values: dict[Any, Any], tree: Any) -> Any:
    """A tree of variables as one of their values."""
    return jax.tree.map(lambda x: x.val if isinstance(x, core.Literal) else values[x], tree)


def _needed(equations: Iterable[Any], wanted: Iterable[Any]) -> list[Any]:
    """Those of the equations, in order, that these variables depend on."""
    needed, found = _variables(wanted), []
    for one in reversed(list(equations)):
        if needed.intersection(one.outvars):
            found.append(one)
            needed |= _variables(one.invars)
    return found[::-1]


def _variables(found: Iterable[Any]) -> set[Any]:
    return {x for x in found if isinstance(x, core.Var)}
