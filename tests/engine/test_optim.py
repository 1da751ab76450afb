import math

import jax
import numpy as np
import pytest

from engine.config import TrainConfig
from engine.optim import AdamW, adamw, schedule, transform


def config(**changes: object) -> TrainConfig:
    return TrainConfig(
        **{"train_batch_size": 1, "num_train_steps": 10, "learning_rate": 1.0, **changes}
    )


def cosine(i: int, n: int) -> float:
    return (1 + math.cos(math.pi * i / n)) / 2


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        ({"lr_schedule": "constant"}, [1] * 10),
        ({"lr_schedule": "constant", "warmup": 0.3}, [1 / 3, 2 / 3, *[1] * 8]),
        ({}, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        ({"warmup": 0.2}, [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ({"warmup": 0.2, "decay": 0.4}, [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]),
        ({"decay": 0.0}, [1] * 10),
        ({"warmup": 0.16, "decay": 0.14}, [0.5, *[1] * 9]),  # 1.6 → 2 steps, 1.4 → 1 step
        ({"warmup": 0.5, "decay": 0.5, "num_train_steps": 3}, [0.5, 1, 1]),  # 2 and 2: decay yields
        ({"warmup": 0.9, "num_train_steps": 2}, [0.5, 1]),  # nothing is left to fall
        ({"lr_schedule": "cosine"}, [cosine(i, 10) for i in range(10)]),
        ({"lr_schedule": "cosine", "warmup": 0.2}, [0.5, 1, *(cosine(i, 8) for i in range(8))]),
        ({"num_train_steps": 1}, [1]),
    ],
)
def test_a_schedule_gives_these_rates(changes: dict, rates: list[float]) -> None:
    rate = schedule(config(**changes))
    steps = changes.get("num_train_steps", 10)
    assert [rate(step) for step in range(1, steps + 1)] == pytest.approx(rates)


def test_the_demo_rises_over_two_steps_and_falls_over_three() -> None:
    demo = config(num_train_steps=16, learning_rate=0.003, warmup=0.1, decay=0.2)
    rate = schedule(demo)
    rates = [rate(step) for step in range(1, 17)]
    assert rates == pytest.approx([0.0015, *[0.003] * 13, 0.002, 0.001])


ROLES = {"weights": "matrix", "stacked_norm": "gain", "embedding": "embedding"}
PARAMS = {
    "weights": np.array([[1.0, -2.0], [3.0, 0.5]], np.float32),
    "stacked_norm": np.array(
        [[1.0, 1.1], [0.9, 1.0]], np.float32
    ),  # two layers of a gain: looks like a matrix
    "embedding": np.array([[0.3, -0.1]], np.float32),
}


@pytest.mark.parametrize("max_grad_norm", [1.0, 1e6])
def test_adamw_is_the_published_one_and_decays_no_gain(max_grad_norm: float) -> None:
    rule = AdamW(0.9, 0.95, 1e-8, weight_decay=0.1, max_grad_norm=max_grad_norm)
    optimizer = transform(rule, ROLES)
    params, moments = PARAMS, optimizer.init(PARAMS)
    expected = {name: x.astype(np.float64) for name, x in PARAMS.items()}
    m, v = ({name: np.zeros_like(x) for name, x in PARAMS.items()} for _ in range(2))

    for t in range(1, 4):
        grads = {name: np.cos(t + 5 * x) for name, x in PARAMS.items()}
        updates, moments = optimizer.update(grads, moments, params)
        params = jax.tree.map(lambda p, u: p - 0.01 * u, params, updates)

        norm = math.sqrt(sum((g**2).sum() for g in grads.values()))
        assert norm > 1.0
        for name, g in grads.items():
            g = g * min(1.0, max_grad_norm / norm)
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.95 * v[name] + 0.05 * g**2
            step = m[name] / (1 - 0.9**t) / (np.sqrt(v[name] / (1 - 0.95**t)) + 1e-8)
            decay = 0.0 if ROLES[name] == "gain" else 0.1
            expected[name] -= 0.01 * (step + decay * expected[name])

    for name, x in params.items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-5, err_msg=name)


def test_the_constants_come_from_the_declaration() -> None:
    declared = config(beta1=0.8, beta2=0.9, epsilon=1e-6, weight_decay=0.0, max_grad_norm=2.0)
    assert adamw(declared) == AdamW(0.8, 0.9, 1e-6, 0.0, 2.0)
