"""One step: its parts, its average and its guard."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.config.schema import GUARD_WINDOW, ModelConfig, TrainConfig
from engine.data.token_store import Batch
from engine.model.decoder import Decoder, Params
from engine.model.loss import Losses, cross_entropy
from engine.training import optim, step

RATES = optim.Rates(np.float32(0.01), np.float32(0.01))


def configured(**changes: Any) -> TrainConfig:
    return TrainConfig(
        **{"train_batch_size": 4, "num_train_steps": 90, "learning_rate": 0.01, **changes}
    )


def drawn(seed: int, scored: float = 1.0) -> Batch:
    """A batch of four rows, of whose targets a part is scored."""
    draw = np.random.default_rng(seed)
    tokens = draw.integers(0, 256, (4, 17), np.int32)
    hidden = draw.random((4, 16)) >= scored
    return Batch(tokens[:, :-1], np.where(hidden, -1, tokens[:, 1:]), None)


def stepper(recipe: step.Recipe) -> Callable[[step.State, Batch], tuple[step.State, step.Figures]]:
    compiled = jax.jit(step.train_step, static_argnums=0)
    return lambda state, batch: compiled(recipe, state, batch, RATES)


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("scored", [1.0, 0.4])
def test_a_batch_in_parts_gives_the_unaccumulated_step(
    tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params], parts: int, scored: float
) -> None:
    batch, params = drawn(1, scored), fresh(tiny, 0)
    results = []
    for count in (1, parts):
        config = configured(gradient_accumulation_steps=count, z_loss_weight=1e-3)
        recipe = step.recipe(Decoder(tiny), config, cross_entropy)
        results.append(stepper(recipe)(step.initial(recipe, params), batch))
    (whole, figures), (pieced, also) = results
    assert float(also.loss) == pytest.approx(float(figures.loss), rel=1e-6)
    assert float(also.grad_norm) == pytest.approx(float(figures.grad_norm), rel=1e-5)
    # The first moments are the gradients, up to clipping and a factor.
    for a, b in zip(leaves(whole.moments), leaves(pieced.moments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_the_objective_is_the_loss_and_the_penalty_per_scored_target(
    tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params]
) -> None:
    def constant(x_TD: jax.Array, head_DV: jax.Array, targets_BS: jax.Array, **_: Any) -> Losses:
        scored = jnp.sum(targets_BS >= 0).astype(jnp.float32)
        return Losses(3 * scored + 0 * (jnp.sum(x_TD) + jnp.sum(head_DV)), scored * 0, scored)

    recipe = step.recipe(Decoder(tiny), configured(), constant)
    state, batch = step.initial(recipe, fresh(tiny, 0)), drawn(2, 0.5)
    assert float(stepper(recipe)(state, batch)[1].loss) == pytest.approx(3)


def test_the_average_follows_the_parameters_and_is_what_is_scored(
    tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params]
) -> None:
    recipe = step.recipe(Decoder(tiny), configured(ema_decay=0.75), cross_entropy)
    state, advance = step.initial(recipe, fresh(tiny, 0)), stepper(recipe)
    expected = leaves(state.params)
    for seed in range(3):
        state, _ = advance(state, drawn(seed))
        expected = [
            0.75 * old + 0.25 * new for old, new in zip(expected, leaves(state.params), strict=True)
        ]
    for a, b in zip(leaves(state.scored), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert any((a != b).any() for a, b in zip(leaves(state.params), expected, strict=True))
    again = step.State.of(state.scored, state.rest)
    assert all((a == b).all() for a, b in zip(leaves(again), leaves(state), strict=True))


def test_a_bad_step_that_is_skipped_changes_nothing(
    tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params]
) -> None:
    def spoilt(x_TD: jax.Array, head_DV: jax.Array, targets_BS: jax.Array, **_: Any) -> Losses:
        losses = cross_entropy(x_TD, head_DV, targets_BS)
        return losses._replace(nats=jnp.where(targets_BS[0, 0] == 7, jnp.nan, losses.nats))

    config = configured(on_bad_step="skip", ema_decay=0.9, spike_sigma=6.0)
    recipe = step.recipe(Decoder(tiny), config, spoilt)
    state, batch = step.initial(recipe, fresh(tiny, 0)), drawn(3)
    poison = Batch(batch.inputs_BS, np.where(np.eye(4, 16) > 0, 7, batch.targets_BS), None)
    harmless = Batch(batch.inputs_BS, np.full_like(batch.targets_BS, 8), None)

    after, figures = stepper(recipe)(state, poison)
    assert figures.bad_steps == after.guard.bad_steps == 1
    like = state._replace(guard=state.guard._replace(bad_steps=1))
    assert all((a == b).all() for a, b in zip(leaves(after), leaves(like), strict=True))
    assert stepper(recipe)(after, poison)[1].bad_steps == 2
    after, figures = stepper(recipe)(after, harmless)
    assert figures.bad_steps == after.guard.bad_steps == 0
    assert any((a != b).any() for a, b in zip(leaves(after), leaves(state), strict=True))


def test_a_parameter_that_is_not_finite_is_seen_where_no_token_reaches_it(
    tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params]
) -> None:
    recipe = step.recipe(Decoder(tiny), configured(), cross_entropy)
    state, batch = step.initial(recipe, fresh(tiny, 0)), drawn(5)
    unseen = np.setdiff1d(np.arange(256), batch.inputs_BS)[0]
    state.params["embedding"] = jnp.asarray(state.params["embedding"]).at[unseen].set(jnp.nan)
    _, figures = stepper(recipe)(state, batch)
    assert np.isfinite([float(figures.loss), float(figures.grad_norm)]).all()
    assert figures.bad_steps == 1


@pytest.mark.parametrize("series", ["losses_W", "grad_norms_W"])
def test_a_spike_is_measured_against_the_last_64_good_steps(
    tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params], series: str
) -> None:
    recipe = step.recipe(Decoder(tiny), configured(spike_sigma=3.0), cross_entropy)
    state, advance = step.initial(recipe, fresh(tiny, 0)), stepper(recipe)
    _, figures = advance(state, drawn(4))
    assert figures.bad_steps == 0, "nothing is a spike before there is a window"

    here = {"losses_W": figures.loss, "grad_norms_W": figures.grad_norm}
    swing = jnp.where(jnp.arange(GUARD_WINDOW) % 2, 0.1, -0.1)  # standard deviation 0.1

    def guard(below: float, good_steps: int) -> step.Guard:
        rings = {name: jnp.full(GUARD_WINDOW, x + 1) for name, x in here.items()}
        rings[series] = here[series] - below + swing
        counts = {"good_steps": good_steps, "bad_steps": 0}
        return step.Guard(**rings, **{name: jnp.int32(n) for name, n in counts.items()})

    for below, good_steps, bad in ((0.35, 64, True), (0.25, 64, False), (0.35, 63, False)):
        after, figures = advance(state._replace(guard=guard(below, good_steps)), drawn(4))
        assert figures.bad_steps == bad
    # 63 good steps have been remembered in places 0 to 62.
    assert int(after.guard.good_steps) == 64
    assert float(after.guard.losses_W[63]) == float(figures.loss)
