"""Optimizers against Optax and against references written from the formulas, on a tree in which
every role occurs, stacked and not; learning rates against tables."""

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
from optax.contrib import muon

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


def test_muon_is_optaxs() -> None:
    """Each matrix of a stack as `optax.contrib.muon` moves it when it is a parameter by itself."""

    def alone(tree: Any) -> Any:
        """The matrices, cut out of their stacks."""
        matrices = {**tree["blocks"], "matrix": tree["matrix"]}
        del matrices["gain"]
        return {name: list(x.reshape(-1, *x.shape[-2:])) for name, x in matrices.items()}

    clipped = [optax.clip_by_global_norm(1.0).update(g, optax.EmptyState())[0] for g in GRADS]
    theirs = muon(0.02, beta=0.95, weight_decay=0.1)
    expected = moved(theirs, alone(PARAMS), [alone(g) for g in clipped])
    got = walked(*compiled("muon"), PARAMS, GRADS, rates=RATES)
    assert_close(alone(jax.tree.map(np.asarray, got)), expected)


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
            x = b * m / (1 - b ** (t + 1)) + (1 - b) * g / (1 - b**t)
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


def test_soap_is_adam_in_the_bases_of_its_factors() -> None:
    """With square matrices, whose first gradient has all directions: otherwise bases are free."""
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal((3, 3)) for _ in range(23)]
    one, p = rule("soap", max_grad_norm=1e9), rng.standard_normal((3, 3))
    params = {"w": p.astype(np.float32)}
    given = [{"w": g.astype(np.float32)} for g in grads]
    got = moved(transform(one, {"w": "column"}), params, given, rates=RATES)["w"]
    left, right, m, v = 0.05 * grads[0] @ grads[0].T, 0.05 * grads[0].T @ grads[0], 0.0, 0.0
    P, Q = (np.linalg.eigh(factor)[1][:, ::-1] for factor in (left, right))
    p = p * (1 - 0.02 * 0.1)  # the first step only decays
    for t, g in enumerate(grads[1:], 1):
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * (P.T @ g @ Q) ** 2
        u = (P.T @ m @ Q / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8)
        p = p - 0.02 * (P @ u @ Q.T + 0.1 * p)
        left, right = 0.95 * left + 0.05 * g @ g.T, 0.95 * right + 0.05 * g.T @ g
        if t % 10 == 0:
            P, Q = np.linalg.qr(left @ P)[0], np.linalg.qr(right @ Q)[0]
    np.testing.assert_allclose(got, p, rtol=2e-4, atol=2e-4)


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
    assert {shape for shape, _ in state.values()} <= {(), (3,)}  # counts and coefficients are left


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
