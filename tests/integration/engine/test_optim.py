"""Optimizers against Optax, against their authors' formulas, and against references written from
formulas on a tree in which every role occurs, stacked and not; learning rates against tables."""

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine.config.schema import TrainConfig
from engine.training import checkpoint
from engine.training.optim import Optimizer, Rates, optimizer, rates, transform
from engine.training.soap import scale_by_soap
from tests.examples import examples

NAMES = "adamw", "nadamw", "adamc", "lion", "soap", "muon", "adamh", "muonh"


def config(**changes: object) -> TrainConfig:
    return TrainConfig(
        **{"train_batch_size": 1, "num_train_steps": 10, "learning_rate": 1.0, **changes}
    )


# ── Learning rates ───────────────────────────────────────────────────────────────────────────


def cosine(i: int, n: int) -> float:
    return (1 + math.cos(math.pi * i / n)) / 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"lr_schedule": "constant"}, [1] * 10),
        ({"lr_schedule": "constant", "warmup": 0.3}, [1 / 3, 2 / 3, *[1] * 8]),
        ({"lr_schedule": "constant", "warmup": 3}, [1 / 3, 2 / 3, *[1] * 8]),
        ({}, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        ({"warmup": 0.2}, [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ({"warmup": 1}, [1, 1, 8 / 9, 7 / 9, 6 / 9, 5 / 9, 4 / 9, 3 / 9, 2 / 9, 1 / 9]),
        ({"warmup": 0}, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        ({"lr_schedule": "cosine"}, [cosine(i, 10) for i in range(10)]),
        ({"lr_schedule": "cosine", "warmup": 2}, [0.5, 1, *(cosine(i, 8) for i in range(8))]),
        ({"lr_schedule": "wsd"}, [*[1] * 9, 0.5]),  # the last fifth: 2 steps, peak and half of it
        (
            {"lr_schedule": "wsd", "warmup": 0.2, "decay": 0.4},
            [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25],
        ),
        (
            {"lr_schedule": "wsd", "warmup": 2, "decay": 4},
            [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25],
        ),
        ({"lr_schedule": "wsd", "decay": 0.0}, [1] * 10),
        ({"lr_schedule": "wsd", "decay": 1}, [1] * 10),  # one step, which begins at the peak
        ({"lr_schedule": "wsd", "decay": 1.0}, [1 - i / 10 for i in range(10)]),
        (
            {"lr_schedule": "wsd", "warmup": 0.16, "decay": 0.14},
            [0.5, *[1] * 9],
        ),  # 1.6 → 2, 1.4 → 1
        ({"lr_schedule": "wsd", "warmup": 0.25, "decay": 0.25}, [0.5, *[1] * 8, 0.5]),  # 2.5 → 2
        (  # 1.5 → 2 and 2: the decay yields
            {"lr_schedule": "wsd", "warmup": 0.5, "decay": 0.5, "num_train_steps": 3},
            [0.5, 1, 1],
        ),
        (  # WSD-S: cycles of five steps, of which the last two fall
            {"lr_schedule": "wsd", "cycle": 5, "decay": 0.4, "warmup": 2},
            [0.5, 1, 1, 1, 0.5, 1, 1, 1, 1, 0.5],
        ),
        (
            {"lr_schedule": "wsd", "cycle": 4, "decay": 2},  # the first has the two left over
            [1, 1, 1, 1, 1, 0.5, 1, 1, 1, 0.5],
        ),
        (
            {"min_lr_ratio": 0.2, "lr_schedule": "wsd", "decay": 4},
            [1, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4],
        ),
        (
            {"min_lr_ratio": 0.5, "warmup": 1},
            [1, *(0.5 + 0.5 * i / 9 for i in range(9, 0, -1))],
        ),
        (
            {"min_lr_ratio": 0.1, "lr_schedule": "cosine"},
            [0.1 + 0.9 * cosine(i, 10) for i in range(10)],
        ),
        ({"num_train_steps": 1}, [1]),
        ({"num_train_steps": 1, "lr_schedule": "cosine"}, [1]),
    ],
)
def test_a_schedule_gives_these_rates(changes: dict, expected: list[float]) -> None:
    declared = config(**changes)
    at = rates(declared)
    every = [at(step) for step in range(1, declared.num_train_steps + 1)]
    assert [float(rate.matrix) for rate in every] == pytest.approx(expected)
    assert all(rate.matrix == rate.rest for rate in every)
    assert all(rate.matrix.dtype == rate.rest.dtype == np.float32 for rate in every)


def test_the_demo_rises_over_two_steps_and_falls_over_three() -> None:
    at = rates(
        config(num_train_steps=16, learning_rate=0.003, warmup=0.1, lr_schedule="wsd", decay=0.2)
    )
    every = [float(at(step).matrix) for step in range(1, 17)]
    assert every == pytest.approx([0.0015, *[0.003] * 13, 0.002, 0.001])


@pytest.mark.parametrize("name", ["soap", "muon", "adamh", "muonh"])
def test_adam_beside_another_optimizer_has_its_own_peak(name: str) -> None:
    shape = {"optimizer": name, "learning_rate": 0.02, "warmup": 2}
    assert rates(config(**shape, adam_learning_rate=0.002))(1) == pytest.approx((0.01, 0.001, 0.5))
    assert rates(config(**shape))(1) == pytest.approx((0.01, 0.01, 0.5))


@given(data=st.data())
def test_a_schedule_rises_to_its_peak_and_falls_to_the_end(data: st.DataObject) -> None:
    steps = data.draw(st.integers(2, 60))
    rising = data.draw(st.integers(0, steps - 1))
    falling = data.draw(st.integers(1, steps - rising))
    at = rates(config(num_train_steps=steps, lr_schedule="wsd", warmup=rising, decay=falling))
    every = [float(at(step).matrix) for step in range(1, steps + 1)]
    assert sum(rate == 1 for rate in every) == steps - max(rising - 1, 0) - (falling - 1)
    peak = every.index(1)
    assert every[: peak + 1] == sorted(every[: peak + 1])
    assert every[peak:] == sorted(every[peak:], reverse=True)
    assert every[0] == pytest.approx(1 / max(rising, 1) if rising else 1)
    assert every[-1] == pytest.approx(1 / falling)


def test_an_update_far_above_the_last_64_is_scaled_down() -> None:
    declared = config(num_train_steps=100, optimizer="lion", beta1=0.0, weight_decay=0.0)
    free, kept = (
        transform(optimizer(declared.model_copy(update={"max_update_sigma": sigma})), {"p": "gain"})
        for sigma in (None, 2.0)
    )
    params = {"p": np.zeros(64, np.float32)}
    states = [free.init(params), kept.init(params)]
    norms: list[float] = []
    draw = np.random.default_rng(0)
    factors = []
    for step in range(160):
        # Lion moves by signs, so the norm is the rate times the root of how many are not 0.
        count = int(draw.integers(8, 13)) if step != 70 else 64
        g = {"p": np.arange(64) < count}
        rate = np.float32(0.1 * min((step + 1) / 10, 1.0) * (1 if step < 90 else 4))  # a phase
        moved = []
        for i, one in enumerate((free, kept)):
            at = Rates(rate, rate, rate / np.float32(0.1))
            grads = {"p": g["p"].astype(np.float32)}
            update, states[i] = one.update(grads, states[i], params, rates=at)
            moved.append(np.asarray(update["p"]))
        norm, last = count**0.5, norms[-64:]
        most = np.mean(last) + 2 * np.std(last) if len(last) == 64 else np.inf
        norms.append(norm)
        np.testing.assert_allclose(moved[1], moved[0] * min(norm, most) / norm, rtol=1e-4)
        factors.append(min(norm, most) / norm)
    assert factors[70] < 0.5, "the spike at step 71 was held"
    assert min(factors[90:]) > 0.9, "a phase with four times the rate is no spike"


# ── Optimizers ───────────────────────────────────────────────────────────────────────────────

ROLES = {
    "embedding": "embedding",
    "blocks": {
        "gain": "gain",  # stacked: looks like a matrix
        "wide": "column",
        "tall": "row",
        "experts": "column",
    },
    "matrix": "row",  # one that is not stacked
    "head": "head",
}
SHAPES = {
    "embedding": (7, 4),
    "blocks": {"gain": (2, 4), "wide": (2, 4, 6), "tall": (2, 6, 4), "experts": (2, 2, 4, 6)},
    "matrix": (5, 4),
    "head": (4, 7),
}
RATES = Rates(matrix=np.float32(0.02), rest=np.float32(0.003))
CONSTANTS = {
    "momentum": 0.95,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "max_grad_norm": 1.0,
}


def draw(seed: int, scale: float = 1.0) -> Any:
    """A tree of SHAPES, of standard normal numbers times `scale`."""
    rng = np.random.default_rng(seed)
    leaves, tree = jax.tree.flatten(SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    return tree.unflatten([np.float32(scale * rng.standard_normal(shape)) for shape in leaves])


def rule(name: str, **changes: float) -> Optimizer:
    if not name.startswith("muon"):
        changes = {"momentum": None, **changes}
    return Optimizer(name, **{**CONSTANTS, **changes})  # type: ignore[arg-type]


def moved(moves: Any, params: Any, grads: list[Any], **extra: Any) -> Any:
    """`params` after an Optax transformation saw each of `grads`."""
    return walked(moves.init, jax.jit(moves.update), params, grads, **extra)


def walked(init: Callable, update: Callable, params: Any, grads: list[Any], **extra: Any) -> Any:
    state = init(params)
    for g in grads:
        deltas, state = update(g, state, params, **extra)
        params = optax.apply_updates(params, deltas)
    return params


@cache
def compiled(name: str) -> tuple[Callable, Callable]:
    """What begins and what updates the state of `rule(name)` on the tree of all roles."""
    moves = transform(rule(name), ROLES)
    return jax.jit(moves.init), jax.jit(moves.update)


def assert_close(got: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    def check(path: Any, a: Any, b: Any) -> None:
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)

    jax.tree_util.tree_map_with_path(check, got, expected)


PARAMS = draw(0)
GRADS = [draw(seed, scale) for seed, scale in ((1, 1.0), (2, 0.01), (3, 3.0), (4, 0.5))]


@pytest.mark.parametrize("max_grad_norm", [1.0, 1e6])
def test_adamw_is_optaxs_and_decays_no_gain(max_grad_norm: float) -> None:
    decayed = jax.tree.map(lambda role: role != "gain", ROLES)
    theirs = optax.chain(
        optax.clip_by_global_norm(max_grad_norm),
        optax.adamw(0.003, 0.9, 0.95, 1e-8, weight_decay=0.1, mask=decayed),
    )
    ours = transform(rule("adamw", max_grad_norm=max_grad_norm), ROLES)
    one = Rates(np.float32(0.003), np.float32(0.003))
    assert_close(moved(ours, PARAMS, GRADS, rates=one), moved(theirs, PARAMS, GRADS))


# Those of a matrix in step t, drawn around one direction, as of a model that learns.
SIDES = {"wide": (12, 36), "tall": (36, 12), "square": (20, 20)}
STEPS = 40


def drifting(shape: tuple[int, ...], scale: float) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    towards = 0.3 * rng.standard_normal(shape)
    return [scale * (towards + rng.standard_normal(shape)) for _ in range(STEPS)]


def moves_of(name: str, p: np.ndarray, grads: list[np.ndarray], **changes: Any) -> list[np.ndarray]:
    """How the lab's optimizer moves one matrix in each step, without clipping and decay, at a
    matrix rate of 1, or 0.02 if it keeps norms."""
    rule = Optimizer(
        name,  # type: ignore[arg-type]
        **{**CONSTANTS, "max_grad_norm": 1e9, "weight_decay": 0.0, **changes},
    )
    transformation, params = transform(rule, {"w": "column"}), {"w": p.astype(np.float32)}
    state, update, found = transformation.init(params), jax.jit(transformation.update), []
    for g in grads:
        rate = np.float32(0.02 if name.endswith("h") else 1.0)
        move, state = update({"w": np.float32(g)}, state, params, rates=Rates(rate, rate))
        params = optax.apply_updates(params, move)
        found.append(np.asarray(move["w"], np.float64))
    return found


def assert_steps_are(found: list[np.ndarray], expected: list[np.ndarray], within: float) -> None:
    for step, (move, other) in enumerate(zip(found, expected, strict=True), 1):
        apart = np.linalg.norm(move - other) / max(np.linalg.norm(other), 1e-30)
        assert apart < within, f"step {step}"


JORDANS = ((3.4445, -4.7750, 2.0315),) * 5
LEVANTERS = (
    *((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037)),
    *((2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)),
)


def newton_schulz(x: np.ndarray, epsilon: float, coefficients: Any) -> np.ndarray:
    x = x / (np.linalg.norm(x) + epsilon)
    for a, b, c in coefficients:
        s = x @ x.T
        x = a * x + b * s @ x + c * s @ (s @ x)
    return x


@pytest.mark.parametrize("scale", [1.0, 1e-5])
@pytest.mark.parametrize("shape", SIDES.values(), ids=SIDES)
def test_muon_is_its_authors(shape: tuple[int, int], scale: float) -> None:
    """KellerJordan/Muon, `muon_update`: its matrices are (out, in), its buffer a mean of gradients
    that starts at 0 and is not corrected, and what is orthogonalised leads ahead of it."""
    grads, buffer, expected = drifting(shape, scale), np.zeros(shape[::-1]), []
    for g in grads:
        buffer = buffer + 0.05 * (g.T - buffer)
        ahead = g.T + 0.95 * (buffer - g.T)
        rows, columns = ahead.shape
        u = newton_schulz(ahead, 1e-7, JORDANS) * max(1, rows / columns) ** 0.5
        expected.append(-u.T)
    assert_steps_are(moves_of("muon", np.zeros(shape), grads), expected, 1e-4)


@pytest.mark.parametrize("coefficients", ["simple", "quintic"])
@pytest.mark.parametrize("scale", [1.0, 1e-5])
@pytest.mark.parametrize("shape", SIDES.values(), ids=SIDES)
def test_muonh_is_levanters(shape: tuple[int, int], scale: float, coefficients: str) -> None:
    """Levanter, `scale_with_muonh`: a sum of gradients that fades, the last one added once more;
    then the move, as a share of the matrix's norm, and back to that norm. `recipe: marin-moe` has
    the coefficients `quintic`."""
    grads, total = drifting(shape, scale), np.zeros(shape)
    p = np.random.default_rng(1).standard_normal(shape)
    found = moves_of("muonh", p, grads, newton_schulz=coefficients)
    expected = []
    for g, move in zip(grads, found, strict=True):
        total = 0.95 * total + g
        sets = JORDANS if coefficients == "simple" else LEVANTERS
        u = newton_schulz(g + 0.95 * total, 1e-8, sets)
        expected.append(on_sphere(p, u))
        p = p + move
    assert_steps_are(found, expected, 1e-4)


@pytest.mark.parametrize("shape", SIDES.values(), ids=SIDES)
def test_adamh_is_levanters(shape: tuple[int, int]) -> None:
    """Levanter, `scale_by_adamh`."""
    grads, m, v, expected = drifting(shape, 0.1), np.zeros(shape), np.zeros(shape), []
    p = np.random.default_rng(1).standard_normal(shape)
    found = moves_of("adamh", p, grads, momentum=None)
    for t, (g, move) in enumerate(zip(grads, found, strict=True), 1):
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g**2
        u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8)
        expected.append(on_sphere(p, u))
        p = p + move
    assert_steps_are(found, expected, 1e-4)


def on_sphere(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm
    q = p - 0.02 * u * norm(p) / norm(u)
    return q / norm(q) * norm(p) - p


@pytest.mark.parametrize("shape", SIDES.values(), ids=SIDES)
def test_soap_is_its_authors(shape: tuple[int, int]) -> None:
    """nikhilvyas/SOAP, `step`: where the bases are refreshed, their columns are sorted by how much
    the factors stretch them, the mean of squares with them. The bases that it begins with are the
    lab's own: what the first gradient of a matrix that is not square does not reach has no
    eigenvalues that differ, and any basis."""
    grads, n = drifting(shape, 0.1), len(shape)
    transformation = scale_by_soap(0.9, 0.95, 1e-8)
    params = {"w": np.zeros(shape, np.float32)}
    state, update, found, bases = (
        transformation.init(params),
        jax.jit(transformation.update),
        [],
        [],
    )
    for g in grads:
        direction, state = update({"w": np.float32(g)}, state)
        found.append(np.asarray(direction["w"], np.float64))
        factors = state.factors["w"]
        bases = bases or [np.float64(factors.left_basis_II), np.float64(factors.right_basis_OO)]
    grams = [0.05 * grads[0] @ grads[0].T, 0.05 * grads[0].T @ grads[0]]
    for gram, basis in zip(grams, bases, strict=True):
        np.testing.assert_allclose(basis.T @ basis, np.eye(len(basis)), atol=1e-4)
        within = basis.T @ gram @ basis
        np.testing.assert_allclose(within, np.diag(np.diag(within)), atol=1e-5 * within[0, 0])
        assert (np.diff(np.diag(within)) < 1e-5 * within[0, 0]).all()
    m, v, expected, sorted_at = np.zeros(shape), np.zeros(shape), [np.zeros(shape)], []
    for t, g in enumerate(grads[1:], 1):
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * (bases[0].T @ g @ bases[1]) ** 2
        size = math.sqrt(1 - 0.95**t) / (1 - 0.9**t)
        u = size * (bases[0].T @ m @ bases[1]) / (np.sqrt(v) + 1e-8)
        expected.append(bases[0] @ u @ bases[1].T)
        grams = [0.95 * gram + 0.05 * x for gram, x in zip(grams, (g @ g.T, g.T @ g), strict=True)]
        if t % 10 == 0:
            for axis in range(n):
                gram, basis = grams[axis], bases[axis]
                order = np.argsort(-np.diag(basis.T @ gram @ basis))
                v, bases[axis] = v.take(order, axis), np.linalg.qr(gram @ basis[:, order])[0]
                sorted_at += [t] if (order != np.arange(len(order))).any() else []
    assert sorted_at[0] == 10, "or sorting would change nothing"
    assert_steps_are(found, expected, 1e-4)


def reference(rule: Optimizer, role: str, p: np.ndarray, grads: list[np.ndarray]) -> np.ndarray:
    """What becomes of one parameter, in float64, written from the formulas."""
    m, v, b = 0.0, 0.0, rule.momentum
    matrix = role in ("column", "row")
    sphere = rule.name.endswith("h")
    rate = 0.02 if matrix else 0.003

    def norm(x: np.ndarray) -> np.ndarray:
        return np.sqrt((x**2).sum((-2, -1), keepdims=True))

    for t, g in enumerate(grads, 1):
        if matrix and rule.name.startswith("muon"):
            m = b * m + (1 - b) * g
            x = b * m + (1 - b) * g
            x = x / norm(x)
            for _ in range(5):
                a = x @ x.swapaxes(-2, -1)
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            u = x * math.sqrt(max(1, p.shape[-1] / p.shape[-2]))
        elif rule.name == "lion":
            u = np.sign(rule.beta1 * m + (1 - rule.beta1) * g)
            m = rule.beta2 * m + (1 - rule.beta2) * g
        else:
            m = rule.beta1 * m + (1 - rule.beta1) * g
            v = rule.beta2 * v + (1 - rule.beta2) * g**2
            mean = m / (1 - rule.beta1**t)
            if rule.name == "nadamw":
                ahead = rule.beta1 * m / (1 - rule.beta1 ** (t + 1))
                mean = ahead + (1 - rule.beta1) * g / (1 - rule.beta1**t)
            u = mean / (np.sqrt(v / (1 - rule.beta2**t)) + rule.epsilon)
        if matrix and sphere:
            q = p - rate * u * norm(p) / np.maximum(norm(u), 1e-10)
            p = q * norm(p) / norm(q)
        else:
            p = p - rate * (u + (0 if sphere or role == "gain" else rule.weight_decay) * p)
    return p


@pytest.mark.parametrize("name", [name for name in NAMES if name != "soap"])
def test_every_role_moves_by_the_formulas(name: str) -> None:
    def clipped(grads: Any) -> Any:
        norm = math.sqrt(sum((g.astype(float) ** 2).sum() for g in jax.tree.leaves(grads)))
        return jax.tree.map(lambda g: g.astype(float) * min(1.0, 1.0 / norm), grads)

    expected = jax.tree.map(
        lambda role, p, *grads: reference(rule(name), role, p.astype(float), list(grads)),
        ROLES,
        PARAMS,
        *map(clipped, GRADS),
    )
    got = walked(*compiled(name), PARAMS, GRADS, rates=RATES)
    assert_close(got, expected, rtol=2e-5, atol=2e-6)


def test_on_a_cpu_soap_factors_one_matrix_after_another() -> None:
    """A batch would be spread over the threads that its call runs on, and two such calls at once
    wait for each other: a training stood still for 50 minutes."""
    moves = scale_by_soap(0.9, 0.95, 1e-8)
    params = {"a": jnp.ones((3, 8, 8)), "b": jnp.ones((2, 4, 8, 12))}
    program = jax.jit(moves.update).lower(params, moves.init(params)).compile().as_text()
    calls = re.findall(r"= (.*) custom-call.*lapack_\w+", program or "")
    assert len(calls) == 12
    assert not [one for one in calls if re.search(r"f32\[\d+,\d+,\d+", one)]


def test_the_decay_of_adamc_falls_with_the_rate_but_for_the_head() -> None:
    none = jax.tree.map(np.zeros_like, PARAMS)
    half = RATES._replace(height=np.float32(0.5))
    got = walked(*compiled("adamc"), PARAMS, [none], rates=half)
    for key, rate in (("matrix", 0.5 * 0.02), ("embedding", 0.5 * 0.003), ("head", 0.003)):
        np.testing.assert_allclose(got[key], (1 - 0.1 * rate) * PARAMS[key], rtol=1e-6, err_msg=key)
    np.testing.assert_array_equal(got["blocks"]["gain"], PARAMS["blocks"]["gain"])
    at = rates(config(optimizer="adamc", learning_rate=0.02, lr_schedule="linear"))
    assert at(1).height == 1.0
    assert at(2).matrix == pytest.approx(0.02 * at(2).height)


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_of_a_stack_moves_as_it_would_alone(name: str) -> None:
    """Here the layers' gradients differ by factors of a million, which a norm over the whole stack
    would mix."""
    shares = rule(name, max_grad_norm=1e9)  # clipping is the one thing that layers share
    scales = np.array([1e-3, 1e3], np.float32)
    grads = [{"w": g["blocks"]["wide"] * scales[:, None, None]} for g in GRADS]
    params = {"w": PARAMS["blocks"]["wide"] * scales[::-1, None, None]}
    together = moved(transform(shares, {"w": "column"}), params, grads, rates=RATES)["w"]
    alone = transform(shares, {"w": ["column"] * 2})
    apart = moved(
        alone, {"w": list(params["w"])}, [{"w": list(g["w"])} for g in grads], rates=RATES
    )["w"]
    for layer in range(2):
        size = np.abs(apart[layer]).max()
        np.testing.assert_allclose(together[layer], apart[layer], atol=1e-5 * size, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_without_gradients_gains_stay_and_only_decay_moves_the_rest(name: str) -> None:
    none = jax.tree.map(np.zeros_like, PARAMS)
    got = walked(*compiled(name), PARAMS, [none, none], rates=RATES)
    np.testing.assert_array_equal(got["blocks"]["gain"], PARAMS["blocks"]["gain"])
    decays = name not in ("adamh", "muonh")
    for key, rate in (("matrix", 0.02), ("embedding", 0.003), ("head", 0.003)):
        left = (1 - 0.1 * rate) ** 2 if decays else 1.0
        np.testing.assert_allclose(got[key], left * PARAMS[key], rtol=1e-6, err_msg=key)


NUMBERS = arrays(np.float32, (2, 3, 4), elements=st.integers(-9, 9).filter(bool).map(float))


@cache
def hyperball(name: str) -> tuple[Callable, Callable]:
    moves = transform(rule(name), {"w": "column"})
    return jax.jit(moves.init), jax.jit(moves.update)


@pytest.mark.parametrize("name", ["adamh", "muonh"])
@settings(max_examples=examples(6), deadline=None)
@given(p=NUMBERS, g=NUMBERS, rate=st.floats(1e-4, 0.9), size=st.sampled_from([1e-4, 1.0, 1e4]))
def test_hyperball_keeps_each_matrixs_norm(
    name: str, p: np.ndarray, g: np.ndarray, rate: float, size: float
) -> None:
    params, one = {"w": p * np.float32(size)}, np.float32(rate)
    after = walked(*hyperball(name), params, [{"w": g}], rates=Rates(one, one))["w"]
    np.testing.assert_allclose(
        np.linalg.norm(after, axis=(-2, -1)), np.linalg.norm(params["w"], axis=(-2, -1)), rtol=3e-6
    )


@pytest.mark.parametrize("name", ["adamh", "muonh"])
def test_hyperball_leaves_a_matrix_of_zeros_alone(name: str) -> None:
    zeros, ones = np.zeros((2, 3, 4), np.float32), np.ones((2, 3, 4), np.float32)
    after = walked(*hyperball(name), {"w": zeros}, [{"w": ones}], rates=RATES)["w"]
    np.testing.assert_array_equal(after, zeros)


def test_arms_that_differ_only_in_rates_share_one_compilation() -> None:
    init, update = compiled("muonh")
    at = rates(config(optimizer="muonh", learning_rate=0.02, adam_learning_rate=0.001))
    other = rates(config(optimizer="muonh", learning_rate=0.01, lr_schedule="cosine"))
    compilations, deltas = set(), []
    for rate in (at(1), at(7), other(2)):
        deltas.append(update(GRADS[0], init(PARAMS), PARAMS, rates=rate)[0]["matrix"])
        compilations.add(update._cache_size())
    assert len(compilations) == 1
    assert not np.array_equal(deltas[0], deltas[1])
    assert not np.array_equal(deltas[1], deltas[2])


@pytest.mark.parametrize("name", NAMES)
def test_a_moment_has_the_shape_of_its_parameter_and_ends_in_its_path(name: str) -> None:
    def paths(tree: Any) -> dict[str, Any]:
        return {
            jax.tree_util.keystr(path, simple=True, separator="/"): (x.shape, x.dtype)
            for path, x in jax.tree_util.tree_leaves_with_path(tree)
        }

    state = paths(jax.eval_shape(transform(rule(name), ROLES).init, PARAMS))
    for parameter, like in paths(PARAMS).items():
        role = ROLES["blocks"].get(parameter.removeprefix("blocks/"), ROLES.get(parameter))
        one = name == "lion" or (name.startswith("muon") and role in ("column", "row"))
        kinds = ["mu"] if one else ["mu", "nu"]
        moments = {path: state.pop(path) for path in list(state) if path.endswith("/" + parameter)}
        assert list(moments.values()) == [like] * len(kinds)
        for kind, path in zip(kinds, moments, strict=True):
            assert path.endswith(f"/{kind}/{parameter}")
    if name == "soap":
        factors = [shape for path, (shape, _) in state.items() if "factors" in path]
        assert all(rows == columns for *_, rows, columns in factors)
        state = {path: of for path, of in state.items() if "factors" not in path}
    assert {shape for shape, _ in state.values()} <= {()}  # counts are left


@pytest.mark.parametrize("name", NAMES)
def test_the_state_goes_through_a_checkpoint(name: str, tmp_path: Path) -> None:
    init, update = compiled(name)
    _, state = update(GRADS[0], init(PARAMS), PARAMS, rates=RATES)
    with checkpoint.manager(tmp_path) as saver:
        checkpoint.save(saver, 1, PARAMS, state)
    restored = checkpoint.restore(tmp_path / "1", "rest", jax.eval_shape(init, PARAMS))
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, restored, state)


def test_the_constants_come_from_the_declaration() -> None:
    declared = config(
        optimizer="muonh",
        momentum=0.9,
        beta1=0.8,
        beta2=0.9,
        epsilon=1e-6,
        weight_decay=0.0,
        max_grad_norm=2.0,
    )
    assert optimizer(declared) == Optimizer("muonh", 0.9, 0.8, 0.9, 1e-6, 0.0, 2.0)
    assert hash(optimizer(declared)) == hash(optimizer(declared))
