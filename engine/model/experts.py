"""A mixture of experts in the place of a block's MLP: a router chooses, for each token, top_k of
many small SwiGLUs, and adds up what they make of it. Names of dimensions, beside those of the
decoder: E experts, K chosen by each token, F the width of an expert, n = T·K the pairs of a token
and an expert, M the places of a buffer that has the rows of an expert together.

Scores are logits of the router, as in DeepSeek-V3 (arXiv 2412.19437): a bias, which has no
gradient, takes part in the choice and not in the weights. What a step changes beside the gradient
(that bias, and how even the load was) are parameters of role "state": see `remember`."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec

from engine.config.schema import ExpertsConfig
from engine.model.decoder import Decoder, SwiGLU
from engine.model.mesh import ROWS, SHARDINGS, platform
from engine.model.parameters import INIT_STD, into_stream, weights

HALVINGS = 24  # of the range of scores: as far as float32 goes


class Experts(nnx.Module):
    """Σ over the K chosen experts of weight · expert(x), and beside it shared(x). With a latent_dim
    the experts work on a projection of x, and their sum is projected back: LatentMoE (arXiv
    2601.18089)."""

    def __init__(self, decoder: Decoder, rngs: nnx.Rngs) -> None:
        config, moe = decoder.config, decoder.config.moe
        assert moe is not None
        D, E, F = config.hidden_dim, moe.num_experts, moe.expert_dim
        self.moe, self.multiply = moe, decoder.compute.experts
        self.router = weights(rngs, "router", (D, E))
        inner, std = moe.latent_dim or D, into_stream(config)
        self.gate_proj = weights(rngs, "expert column", (E, inner, F))
        self.up_proj = weights(rngs, "expert column", (E, inner, F))
        self.down_proj = weights(
            rngs, "expert row", (E, F, inner), INIT_STD if moe.latent_dim else std
        )
        if moe.latent_dim:
            self.latent_down_proj = weights(rngs, "column", (D, inner))
            self.latent_up_proj = weights(rngs, "row", (inner, D), std)
        if moe.shared_dim:
            self.shared = SwiGLU(decoder, rngs, moe.shared_dim)
        self.bias = nnx.Param(jnp.zeros(E), role="state")  # of the choice in the next step
        self.load = nnx.Param(jnp.ones(E), role="state")  # in the last step; 1 is even
        self.dropped = nnx.Param(jnp.zeros(()), role="state")  # fraction of its n pairs

    def __call__(self, x_TD: jax.Array) -> jax.Array:
        moe, bias_E, load_E = self.moe, self.bias[...], self.load[...]
        old = bias_E, load_E, self.dropped[...]
        if moe.balance == "bias":  # moved here, when the whole batch before has been counted
            bias_E += (moe.balance_rate or 0) * jnp.sign(1 - load_E)
        logits_TE = x_TD.astype(jnp.float32) @ self.router[...]
        weights_TK, chosen_TK, least_T = route(
            logits_TE, bias_E, moe.top_k, moe.weight_sum, moe.scores
        )
        load_E = jnp.mean(chosen_TK[:, :, None] == jnp.arange(moe.num_experts), (0, 1))
        load_E = moe.num_experts * load_E.astype(jnp.float32)
        if moe.balance == "quantile":
            bias_E = quantile_bias(logits_TE, least_T, moe.top_k)
        if moe.router_z_loss or moe.balance == "auxiliary":
            x_TD = also(partial(penalty, moe), x_TD, logits_TE, load_E)
        ragged = self.multiply == "ragged" or (self.multiply is None and platform() != "cpu")
        how = How(moe.num_experts, moe.capacity_factor, ragged)
        matrices = self.gate_proj[...], self.up_proj[...], self.down_proj[...]
        inner_TD = x_TD @ self.latent_down_proj[...] if moe.latent_dim else x_TD
        y_TD, kept_T = mixture(how, inner_TD, weights_TK, chosen_TK, *matrices)
        if moe.latent_dim:
            y_TD = y_TD @ self.latent_up_proj[...]
        y_TD = remember(y_TD, old, (bias_E, load_E, 1 - jnp.mean(kept_T) / moe.top_k))
        return y_TD + self.shared(x_TD) if moe.shared_dim else y_TD


# ── The choice ───────────────────────────────────────────────────────────────────────────────


def route(
    logits_TE: jax.Array,
    bias_E: jax.Array,
    top_k: int,
    weight_sum: float,
    scores: Literal["sigmoid", "softmax"] = "sigmoid",
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The experts with the top_k largest biased logits: their weights, scores without
    bias scaled to the sum; their numbers; and the largest biased logit of those that are not chosen
    (−∞ if there are none). Returns (T, K), (T, K), (T,).

    A single one's weight is its score times the sum, as in Switch (Fedus et al. 2021, arXiv
    2101.03961, equation 2, with a softmax there): scaled to the sum it would be a constant, which
    gives the router no gradient."""
    biased_TE = jax.lax.stop_gradient(logits_TE) + bias_E
    best, number = jax.lax.top_k(biased_TE, min(top_k + 1, logits_TE.shape[1]))
    chosen_TK, least_T = number[:, :top_k], best[:, -1]
    if top_k == logits_TE.shape[1]:
        least_T = jnp.full_like(least_T, -jnp.inf)
    weights_TK = jnp.take_along_axis(score(logits_TE, scores), chosen_TK, axis=1)
    together_T1 = jnp.sum(weights_TK, axis=1, keepdims=True) + 1e-9 if top_k > 1 else 1
    weights_TK *= weight_sum / together_T1
    return weights_TK, chosen_TK, least_T


def score(logits_TE: jax.Array, scores: Literal["sigmoid", "softmax"]) -> jax.Array:
    """What weighs each expert, (T, E)."""
    return jax.nn.sigmoid(logits_TE) if scores == "sigmoid" else jax.nn.softmax(logits_TE)


def quantile_bias(logits_TE: jax.Array, least_T: jax.Array, top_k: int) -> jax.Array:
    """Quantile balancing, as in Marin: the bias with which, against the choices that tokens have
    now, each expert would be chosen by T·K/E of them. Expert e has a margin over each token's best
    expert that is not chosen; minus the bias is the ⌊T·K/E⌋-th largest of them, less the mean over
    experts. T are the tokens of all devices. Returns (E,)."""
    margins_TE = jax.lax.stop_gradient(logits_TE) - least_T[:, None]
    T, E = margins_TE.shape
    rank = max(1, T * top_k // E)

    # Halving the range needs counts only, which devices add up; sorting would need all margins.
    def halve(_: Any, range_of: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low_E, high_E = range_of
        middle_E = (low_E + high_E) / 2
        enough_E = jnp.sum(margins_TE >= middle_E, axis=0) >= rank
        return jnp.where(enough_E, middle_E, low_E), jnp.where(enough_E, high_E, middle_E)

    ends = jnp.min(margins_TE, axis=0), jnp.max(margins_TE, axis=0)
    quantile_E, _ = jax.lax.fori_loop(0, HALVINGS, halve, ends)
    return jnp.mean(quantile_E) - quantile_E


def penalty(moe: ExpertsConfig, logits_TE: jax.Array, load_E: jax.Array) -> jax.Array:
    """What is added to the mean loss: with balance auxiliary, balance_rate · Σ over experts of load
    · mean score, where a token's scores are scaled to 1 (DeepSeek-V3, without its
    sequences); and router_z_loss · mean logsumexp² (ST-MoE, arXiv 2202.08906)."""
    found = moe.router_z_loss * jnp.mean(jax.nn.logsumexp(logits_TE, axis=1) ** 2)
    if moe.balance == "auxiliary":
        scores_TE = score(logits_TE, moe.scores)
        scores_TE /= jnp.sum(scores_TE, axis=1, keepdims=True)
        found += (moe.balance_rate or 0) * jnp.sum(load_E * jnp.mean(scores_TE, axis=0))
    return found


# ── The experts ──────────────────────────────────────────────────────────────────────────────


class How(NamedTuple):
    """How a mixture is computed."""

    num_experts: int  # on all devices
    capacity_factor: float | None
    ragged: bool

    def capacity(self, n: int) -> int:
        """The most tokens that an expert takes of n pairs."""
        if self.capacity_factor is None:
            return n
        return min(n, math.ceil(self.capacity_factor * n / self.num_experts))


def mixture(how: How, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Σ over the chosen experts of weight · (silu(x · gate) ⊙ (x · up)) · down. The arrays are x
    (T, D), weights and numbers of the chosen (T, K), gate and up (E, D, F), down (E, F, D).

    With a capacity factor c an expert takes c·T·K/E tokens at most, the first ones of the batch,
    but only where a gradient is taken: what is scored must not depend on what is beside it. On
    a mesh T are the tokens of the devices along `expert`. Returns y (T, D), and of how many experts
    each token had an answer (T,)."""
    return (_on_mesh if how.capacity_factor is None else _in_training)(how, *arrays)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_training(how: How, *arrays: jax.Array) -> Any:
    return _on_mesh(how._replace(capacity_factor=None), *arrays)


def _forward(how: How, *arrays: jax.Array) -> Any:
    return jax.vjp(partial(_on_mesh, how), *arrays)


def _backward(_: How, back: Any, of_results: Any) -> Any:
    return back(of_results)


_in_training.defvjp(_forward, _backward)


def _on_mesh(how: How, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Each device computes its experts for the rows of all devices along `expert`.

    Their matrices are gathered along `fsdp` here and not by XLA: the transpose of this gather
    leaves each device its slice of the sum of gradients. XLA compiled an all-reduce of whole
    gradients, which sends twice as much."""
    run = partial(_on_device, how)
    if jax.sharding.get_abstract_mesh().size <= 1:
        return run(0, *arrays)

    def part(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = arrays[:3]
        matrices = [
            jax.lax.all_gather(x, "fsdp", axis=tuple(spec).index("fsdp"), tiled=True)
            for x, spec in zip(arrays[3:], of_matrices, strict=True)
        ]
        rows = tuple(jax.lax.all_gather(x, "expert", tiled=True) for x in rows)
        first = jax.lax.axis_index("expert") * len(matrices[0])
        y_TD, kept_T = run(first, *rows, *matrices)
        y_TD = jax.lax.psum(y_TD, "tensor")
        return tuple(jax.lax.psum_scatter(x, "expert", tiled=True) for x in (y_TD, kept_T))

    rows, into = PartitionSpec(ROWS, None), SHARDINGS["expert column"]
    of_matrices = into, into, SHARDINGS["expert row"]
    return jax.shard_map(
        part,
        in_specs=(rows, rows, rows, *of_matrices),
        out_specs=(rows, PartitionSpec(ROWS)),
        check_vma=False,
    )(*arrays)


def _on_device(
    how: How,
    first: jax.Array | int,
    x_TD: jax.Array,
    weights_TK: jax.Array,
    chosen_TK: jax.Array,
    gate_EDF: jax.Array,
    up_EDF: jax.Array,
    down_EFD: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """`mixture` of the experts from `first` on that the matrices are of; of others nothing is
    added."""
    (T, K), E = chosen_TK.shape, len(gate_EDF)
    n = T * K
    expert_n = chosen_TK.reshape(-1) - first
    here_n = (expert_n >= 0) & (expert_n < E)
    expert_n = jnp.where(here_n, expert_n, E)  # E: another device's
    count_E = jnp.sum(expert_n[:, None] == jnp.arange(E), axis=0)

    # Where an expert's places begin in the buffer, and how each place finds its expert's matrices.
    product: Callable[[jax.Array, jax.Array], jax.Array]
    if how.ragged:
        M, start_E = n, jnp.cumsum(count_E) - count_E

        def product(x_MD: jax.Array, w_EDF: jax.Array) -> jax.Array:
            return jax.lax.ragged_dot(x_MD, w_EDF, count_E)
    else:
        if how.capacity_factor is not None:
            blocks, block = E, how.capacity(n)
            start_E = jnp.arange(E) * block
            expert_of_block: Any = slice(None)
        else:
            # A quarter of the even load. Smaller blocks copy the matrices more often, larger ones
            # compute more padding.
            block = max(1, min(128, n // how.num_experts // 4))
            blocks = min(n, (n + E * (block - 1)) // block)
            end_E = jnp.cumsum(-(-count_E // block))
            start_E = (end_E + count_E // -block) * block
            expert_of_block = jnp.searchsorted(end_E, jnp.arange(blocks), side="right")
            expert_of_block = jnp.minimum(expert_of_block, E - 1)  # empty ones at the end
        M = blocks * block

        def product(x_MD: jax.Array, w_EDF: jax.Array) -> jax.Array:
            x_NbD = x_MD.reshape(blocks, block, -1)
            return jnp.einsum("nbd,ndf->nbf", x_NbD, w_EDF[expert_of_block]).reshape(M, -1)

    order_n = jnp.argsort(expert_n)  # stable: the first tokens come first
    before_n = jnp.cumsum(count_E) - count_E  # of earlier experts
    ahead_n = jnp.zeros(n, jnp.int32).at[order_n].set(jnp.arange(n)) - before_n[expert_n]
    kept_n = here_n & (ahead_n < how.capacity(n))
    place_n = jnp.where(kept_n, start_E[expert_n] + ahead_n, M)  # M: none
    pair_M = jnp.full(M, n).at[place_n].set(jnp.arange(n), mode="drop")  # n: none

    x_MD = x_TD.at[pair_M // K].get(mode="fill", fill_value=0)
    h_MF = jax.nn.silu(product(x_MD, gate_EDF)) * product(x_MD, up_EDF)
    y_MD = product(h_MF, down_EFD)
    y_nD = y_MD.at[place_n].get(mode="fill", fill_value=0)
    y_TKD = y_nD.reshape(T, K, -1) * weights_TK[:, :, None]
    return jnp.sum(y_TKD, axis=1).astype(x_TD.dtype), jnp.sum(kept_n.reshape(T, K), axis=1).astype(
        jnp.float32
    )


# ── Beside the gradient ──────────────────────────────────────────────────────────────────────


@jax.custom_vjp
def remember(x: jax.Array, old: Any, new: Any) -> jax.Array:  # noqa: ARG001
    """x; and in the place of a gradient, the states in `old` get the change to `new` (trees of
    arrays). `engine.training.step` adds it to them as it is, and with gradient accumulation the
    mean over the parts."""
    return x


def _remember(x: jax.Array, old: Any, new: Any) -> tuple[jax.Array, Any]:
    return x, jax.tree.map(jnp.subtract, new, old)


def _change(change: Any, of_x: jax.Array) -> tuple[jax.Array, Any, Any]:
    return of_x, change, jax.tree.map(jnp.zeros_like, change)


remember.defvjp(_remember, _change)


def balance(roles: Any, params: Any) -> tuple[jax.Array, jax.Array] | None:
    """The largest load of an expert in any layer, 1 being even, and the fraction of pairs that were
    dropped, in the step that made these parameters; None if they have no experts."""
    found: dict[str, list[jax.Array]] = {"load": [], "dropped": []}
    both = zip(jax.tree.leaves_with_path(params), jax.tree.leaves(roles), strict=True)
    for (path, x), role in both:
        if role == "state" and (name := jax.tree_util.keystr(path[-1:], simple=True)) in found:
            found[name].append(x)
    if not all(found.values()):
        return None
    most = jnp.max(jnp.stack([jnp.max(x) for x in found["load"]]))
    return most, jnp.mean(jnp.stack([jnp.mean(x) for x in found["dropped"]]))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def also(loss: Callable[..., jax.Array], x: jax.Array, *of: jax.Array) -> jax.Array:  # noqa: ARG001
    """x; and the gradient of `loss(*of)` is added to that of the objective, with weight 1."""
    return x


def _also(loss: Callable[..., jax.Array], x: jax.Array, *of: jax.Array) -> tuple[jax.Array, Any]:
    return x, jax.vjp(loss, *of)[1]


def _with_its_gradient(_: Any, back: Any, of_x: jax.Array) -> Any:
    return of_x, *back(jnp.ones((), jnp.float32))


also.defvjp(_also, _with_its_gradient)
