"""The decoder: token embedding, blocks of attention and SwiGLU, a final norm and an output matrix,
as in Llama. Each part is a Flax NNX module that declares its parameters and their roles once;
everything else works on the plain tree of arrays that `Decoder.init` returns:

    {"embedding": VD,
     "blocks": {"attention_norm": {"gain"}, "attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
                "mlp_norm": {"gain"}, "mlp": {"gate_proj", "up_proj", "down_proj"}},
     "final_norm": {"gain"}, "lm_head": DV unless tied}

Everything in "blocks" has a leading axis of layers. With learned query and key norms, "attention"
has "q_norm" and "k_norm", too, and with biases "q_bias", "k_bias", "v_bias" and "o_bias"; a mixture
of experts has another "mlp" (`experts.py`); a declaration may add further parts (`parts.py`,
`gated_norm.py`). Linear layers (`linear_attention.py`) are in "linear_blocks".
`engine.config.shapes` lists all of it. Matrices are (in, out): y = x @ w. Activations are
two-dimensional, (B·S, D), outside of attention: in three dimensions the gradient would make
transposed copies.

To replace a part, pass another class: `Decoder(config, attention=MyAttention)`. Every part is built
as `Part(decoder, rngs)` from its Decoder and a source of random keys."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engine.config.schema import ComputeConfig, LayerKind, ModelConfig
from engine.config.shapes import stack
from engine.model import layers, parts
from engine.model.attention import attend
from engine.model.initialisation import sized
from engine.model.mesh import ROWS, constrain, platform
from engine.model.parameters import IN_FLOAT32, bias, gain, into_stream, weights
from engine.model.parameters import Role as Role
from engine.model.parts import rms_norm as rms_norm
from engine.model.parts import rotate as rotate

Params = dict[str, Any]
Part = Callable[["Decoder", nnx.Rngs], Any]  # a subclass of nnx.Module


class Sequences(NamedTuple):
    """How the T = B·S rows of an activation form sequences."""

    seq_len: int
    segments_BS: jax.Array | None  # document of each position, 0: padding; None: one per row
    memory: Any = None  # when text is generated: a layer's `engine.model.generation.Memory`


class Model(Protocol):
    """A whole model, as training needs it: hashable, so that it can be a static argument of
    `jax.jit`. `config` has `vocab_size`, `seq_len` and `logit_soft_cap`. `Decoder` documents the
    methods. `engine.model.plain` makes a Model from two functions."""

    @property
    def config(self) -> Any: ...
    @property
    def compute(self) -> ComputeConfig: ...
    def init(self, key: jax.Array) -> Params: ...
    def roles(self) -> Params: ...
    def features(
        self, params: Params, tokens_BS: jax.Array, segments_BS: jax.Array | None = None
    ) -> jax.Array: ...
    def output_matrix(self, params: Params) -> Any: ...
    def logits(
        self, params: Params, tokens_BS: jax.Array, segments_BS: jax.Array | None = None
    ) -> jax.Array: ...


class RMSNorm(nnx.Module):
    """x · rsqrt(mean(x²) + ε) · gain, in float32. Returns the dtype of x."""

    def __init__(self, decoder: "Decoder", rngs: nnx.Rngs) -> None:  # noqa: ARG002
        self.epsilon = decoder.config.norm_epsilon
        self.gain = gain(decoder.config.hidden_dim)

    def __call__(self, x_TD: jax.Array) -> jax.Array:
        return rms_norm(x_TD, self.epsilon, self.gain[...])


class Attention(nnx.Module):
    """Causal self-attention with rotary positions; groups of query heads share key/value heads."""

    def __init__(self, decoder: "Decoder", rngs: nnx.Rngs) -> None:
        config = decoder.config
        D, h = config.hidden_dim, config.head_dim
        self.config, self.implementation = config, decoder.compute.attention
        self.q_proj = weights(rngs, "column", (D, config.num_heads * h))
        self.k_proj = weights(rngs, "column", (D, config.num_kv_heads * h))
        self.v_proj = weights(rngs, "column", (D, config.num_kv_heads * h))
        self.o_proj = weights(rngs, "row", (config.num_heads * h, D), into_stream(config))
        if config.attention_bias != "none":
            self.q_bias, self.k_bias, self.v_bias = (
                bias(heads * h)
                for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)
            )
        if config.attention_bias == "all":
            self.o_bias = bias(D)
        if config.qk_norm == "learned":
            self.q_norm, self.k_norm = gain(h), gain(h)
        elif config.qk_norm == "whole":
            self.q_norm, self.k_norm = gain(config.num_heads * h), gain(config.num_kv_heads * h)
        if config.attention_gate:  # what begins at 0 has no norm for Hyperball to keep
            self.gate = nnx.Param(jnp.zeros((D, config.num_heads)), role="gain")
        if taps := config.short_convolution:
            self.k_conv = nnx.Param(parts.identity(taps, config.num_kv_heads * h), role="gain")

    def __call__(self, x_TD: jax.Array, sequences: Sequences) -> jax.Array:
        o_BSHh = self.heads(x_TD, sequences)
        y_TD = o_BSHh.reshape(len(x_TD), -1) @ self.o_proj[...]
        if self.config.attention_bias == "all":
            y_TD += self.o_bias[...].astype(y_TD.dtype)
        return y_TD

    def heads(self, x_TD: jax.Array, sequences: Sequences) -> jax.Array:
        """The output of each head, before o_proj mixes them. Returns B, S, H, h."""
        q_BSHh, k_BSKh, v_BSKh = self.qkv(x_TD, sequences)
        if sequences.memory is None:
            o_BSHh = self.attend(q_BSHh, k_BSKh, v_BSKh, sequences.segments_BS)
        else:
            o_BSHh = sequences.memory.attend(self, q_BSHh, k_BSKh, v_BSKh)
        if self.config.exclusive_attention:
            o_BSHh = parts.exclusive(o_BSHh, v_BSKh)
        return parts.gated(o_BSHh, x_TD, self.gate[...]) if self.config.attention_gate else o_BSHh

    def attend(
        self,
        q_BSHh: jax.Array,
        k_BSKh: jax.Array,
        v_BSKh: jax.Array,
        segments_BS: jax.Array | None = None,
    ) -> jax.Array:
        """`attention.attend`, as this model is configured."""
        window = self.config.sliding_window
        return attend(q_BSHh, k_BSKh, v_BSKh, segments_BS, window, self.implementation)

    def qkv(self, x_TD: jax.Array, sequences: Sequences) -> tuple[jax.Array, jax.Array, jax.Array]:
        """What is attended: queries (B, S, H, h), keys and values (B, S, K, h), normalised and
        rotated."""
        config, seq_len = self.config, sequences.seq_len
        K, h = config.num_kv_heads, config.head_dim
        G = config.num_heads // K
        # One matmul for all three is faster than three. The parameters stay separate, because
        # optimizers and exchange formats need that. They are joined within each key/value head: a
        # device with some of the heads holds all three for them, so devices exchange nothing.
        qkv = (self.q_proj[...], self.k_proj[...], self.v_proj[...])
        w_DKNh = jnp.concatenate([w.reshape(len(w), K, -1, h) for w in qkv], axis=2)
        qkv_TN = x_TD @ w_DKNh.reshape(len(w_DKNh), -1)
        if config.attention_bias != "none":
            biases = (self.q_bias[...], self.k_bias[...], self.v_bias[...])
            b_KNh = jnp.concatenate([b.reshape(K, -1, h) for b in biases], axis=1)
            qkv_TN += b_KNh.reshape(-1).astype(qkv_TN.dtype)
        qkv_BSKNh = qkv_TN.reshape(-1, seq_len, K, G + 2, h)
        q_BSKGh, k_BSK1h, v_BSK1h = jnp.split(qkv_BSKNh, (G, G + 1), axis=3)
        q_BSHh = q_BSKGh.reshape(*q_BSKGh.shape[:2], K * G, h)
        k_BSKh, v_BSKh = k_BSK1h.squeeze(3), v_BSK1h.squeeze(3)
        if config.short_convolution:
            k_TN = parts.convolved(k_BSKh.reshape(-1, K * h), self.k_conv[...], sequences)
            k_BSKh = k_TN.reshape(k_BSKh.shape)
        if config.qk_norm != "none":
            learned = config.qk_norm != "rms"
            gains = (self.q_norm[...], self.k_norm[...]) if learned else (None, None)
            together = (-1,) if config.qk_norm == "whole" else (-1, h)
            q_BSHh, k_BSKh = (
                rms_norm(x.reshape(*x.shape[:2], *together), config.norm_epsilon, gain).reshape(
                    x.shape
                )
                for x, gain in zip((q_BSHh, k_BSKh), gains, strict=True)
            )
        turned = round(config.rope_fraction * h)
        positions_BS = None if sequences.memory is None else sequences.memory.positions_BS
        q_BSHh, k_BSKh = (
            rotate(x, config.rope_theta, positions_BS, turned, config.rope_scaling)
            for x in (q_BSHh, k_BSKh)
        )
        return q_BSHh, k_BSKh, v_BSKh


class SwiGLU(nnx.Module):
    """(silu(x · gate) ⊙ (x · up)) · down, of the model's intermediate_dim or another `width`."""

    def __init__(self, decoder: "Decoder", rngs: nnx.Rngs, width: int | None = None) -> None:
        D, F = decoder.config.hidden_dim, width or decoder.config.intermediate_dim
        self.gate_proj = weights(rngs, "column", (D, F))
        self.up_proj = weights(rngs, "column", (D, F))
        self.down_proj = weights(rngs, "row", (F, D), into_stream(decoder.config))

    def __call__(self, x_TD: jax.Array) -> jax.Array:
        # One matmul, as for q, k and v. On an axis of their own, so that sharding F keeps each
        # whole.
        both_D2F = jnp.stack((self.gate_proj[...], self.up_proj[...]), axis=1)
        both_T2F = jnp.einsum("td,dgf->tgf", x_TD, both_D2F)
        gate_TF, up_TF = (x.squeeze(1) for x in jnp.split(both_T2F, 2, axis=1))
        return (jax.nn.silu(gate_TF) * up_TF) @ self.down_proj[...]


def feed_forward(decoder: "Decoder", rngs: nnx.Rngs) -> Any:
    """The MLP of a block that the configuration names: one for all tokens, or experts."""
    from engine.model.experts import Experts  # which is made of parts of this module

    return (Experts if decoder.config.moe else SwiGLU)(decoder, rngs)


def norm(decoder: "Decoder", rngs: nnx.Rngs) -> Any:
    """The norm that the configuration names: plain, or with a gate."""
    from engine.model.gated_norm import GatedNorm  # which is made of parts of this module

    return (GatedNorm if decoder.config.gated_norm else RMSNorm)(decoder, rngs)


class Block(nnx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), or with norms after them x +
    norm(attention(x)), then x + norm(mlp(x)); both may go through a short convolution."""

    def __init__(self, decoder: "Decoder", rngs: nnx.Rngs) -> None:
        self.attention_norm = decoder.norm(decoder, rngs)
        self.attention = decoder.attention(decoder, rngs)
        self.mlp_norm = decoder.norm(decoder, rngs)
        self.mlp = decoder.mlp(decoder, rngs)
        self.taps = decoder.config.short_convolution
        self.after = decoder.config.norm_position == "after"
        if self.taps:
            taps_ND = parts.identity(self.taps, decoder.config.hidden_dim)
            self.attention_conv = nnx.Param(taps_ND, role="gain")
            self.mlp_conv = nnx.Param(taps_ND, role="gain")

    def __call__(self, x_TD: jax.Array, sequences: Sequences) -> jax.Array:
        y_TD = self.attention(x_TD if self.after else self.attention_norm(x_TD), sequences)
        if self.taps:
            y_TD = parts.convolved(y_TD, self.attention_conv[...], sequences)
        x_TD = x_TD + (self.attention_norm(y_TD) if self.after else y_TD)
        y_TD = self.mlp(x_TD if self.after else self.mlp_norm(x_TD))
        if self.taps:
            y_TD = parts.convolved(y_TD, self.mlp_conv[...], sequences)
        return x_TD + (self.mlp_norm(y_TD) if self.after else y_TD)


class Ends(nnx.Module):
    """The parts before the blocks and after them."""

    def __init__(self, decoder: "Decoder", rngs: nnx.Rngs) -> None:
        V, D = decoder.config.vocab_size, decoder.config.hidden_dim
        self.embedding = weights(rngs, "embedding", (V, D))
        if decoder.config.gated_norm:
            self.embedding_norm = decoder.norm(decoder, rngs)
        self.final_norm = decoder.norm(decoder, rngs)
        if not decoder.config.tie_word_embeddings:
            self.lm_head = weights(rngs, "head", (D, V))


@dataclass(frozen=True)
class Decoder:
    """The lab's Model; `Model` says what another one must have."""

    config: ModelConfig
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    block: Part = Block
    attention: Part = Attention
    mlp: Part = feed_forward
    norm: Part = norm

    def init(self, key: jax.Array) -> Params:
        """Draw float32 parameters.

        Gains are 1. Weights have a normal distribution with standard deviation 0.02, cut at two
        standard deviations. Those that write to the residual stream (o_proj and down_proj) are
        scaled by 1/√(2 · num_layers), so that its variance does not grow with depth (GPT-2). The
        configuration may name another initialisation, of other sizes (`initialisation`).
        """
        ends_key, blocks_key = jax.random.split(key)

        def draw(decoder: Decoder, module: Part, key: jax.Array) -> Params:
            state = nnx.state(module(decoder, nnx.Rngs(params=key)))
            return nnx.to_pure_dict(state, extract_fn=lambda x: sized(self.config, x))

        keys = jax.random.split(blocks_key, self.config.num_layers)
        stacks = {}
        for name, numbers in self.stacks().items():
            of = self.of(self.config.kinds[numbers[0]])
            these = keys if len(numbers) == len(keys) else keys[np.array(numbers)]
            stacks[name] = jax.vmap(lambda key, of=of: draw(of, of.block, key))(these)
        return {**draw(self, Ends, ends_key), **stacks}

    def roles(self) -> Params:
        """The role of each parameter, in the same tree as `init`."""

        def roles(decoder: Decoder, module: Part) -> Params:
            _, state = decoder.declared(module)
            return nnx.to_pure_dict(state, extract_fn=lambda one: one.get_metadata("role"))

        kinds = self.config.kinds
        of = {name: self.of(kinds[numbers[0]]) for name, numbers in self.stacks().items()}
        return roles(self, Ends) | {name: roles(one, one.block) for name, one in of.items()}

    def stacks(self) -> dict[str, list[int]]:
        """The layers of each stack of parameters, by their numbers."""
        found: dict[str, list[int]] = {}
        for number, kind in enumerate(self.config.kinds):
            found.setdefault(stack(kind), []).append(number)
        return found

    def of(self, kind: LayerKind) -> "Decoder":
        """The decoder whose layers are all of this kind."""
        if not self.config.layer_pattern:
            return self
        if kind != "linear":
            return replace(self, config=self.config.of(kind))
        from engine.model.linear_attention import GatedDeltaNet  # made of parts of this module

        return replace(self, config=self.config.of(kind), attention=GatedDeltaNet)

    def features(
        self, params: Params, tokens_BS: jax.Array, segments_BS: jax.Array | None = None
    ) -> jax.Array:
        """The residual stream after the final norm, (B·S, D) in the compute dtype. S may be any
        length; `segments_BS` as in Sequences."""
        sequences = Sequences(tokens_BS.shape[1], segments_BS)
        unroll = self.compute.unrolls(self.config.num_layers)

        def layer(kind: LayerKind) -> layers.Layer:
            definition, _ = self.of(kind).declared(self.of(kind).block)

            def through(x_TD: jax.Array, of: Params) -> jax.Array:
                return constrain(nnx.merge(definition, of)(x_TD, sequences), ROWS, None)

            if self.compute.remat == "block":  # a loop of single layers prevents it itself
                return jax.checkpoint(
                    through, prevent_cse=unroll or bool(self.config.layer_pattern)
                )
            return through

        of_kinds = {kind: layer(kind) for kind in self.config.kinds}
        x_TD = self.embed(params, tokens_BS)
        x_TD = layers.run(self.config, of_kinds, self.cast(params), x_TD, unroll)
        return self.final(params, x_TD)

    def embed(self, params: Params, tokens_BS: jax.Array) -> jax.Array:
        """The residual stream before the first block, (B·S, D) in the compute dtype."""
        # The look-up is in the float32 parameters, so that gradients are summed in float32.
        x_TD = params["embedding"][tokens_BS.reshape(-1)].astype(self.dtype)
        # The look-up is sharded by D, which then changes places with rows along `fsdp`. In fewer
        # steps XLA would gather the whole table, or the gradients of the rows of all devices.
        x_TD = constrain(x_TD, ("data", "expert"), "fsdp")
        x_TD = constrain(constrain(x_TD, ("data", "expert", "fsdp"), None), ROWS, None)
        return self.ends(params).embedding_norm(x_TD) if self.config.gated_norm else x_TD

    def final(self, params: Params, x_TD: jax.Array) -> jax.Array:
        """The final norm of the residual stream."""
        return self.ends(params).final_norm(x_TD)

    def ends(self, params: Params) -> Ends:
        """The parts before the blocks and after them."""
        definition, _ = self.declared(Ends)
        ends = {name: x for name, x in params.items() if name not in self.stacks()}
        found: Ends = nnx.merge(definition, ends)
        return found

    def output_matrix(self, params: Params) -> jax.Array:
        """The matrix from features to logits, (D, V) in the compute dtype."""
        if self.config.tie_word_embeddings:
            return params["embedding"].T.astype(self.dtype)
        return params["lm_head"].astype(self.dtype)

    def logits(
        self, params: Params, tokens_BS: jax.Array, segments_BS: jax.Array | None = None
    ) -> jax.Array:
        """Logits of each position's next token, soft-capped if the model has a cap. Returns (B, S,
        V), float32. For scoring; training never holds all logits (`loss.cross_entropy`)."""
        x_TD, head_DV = self.features(params, tokens_BS, segments_BS), self.output_matrix(params)
        logits_TV = jnp.matmul(x_TD, head_DV, preferred_element_type=jnp.float32)
        return soft_cap(logits_TV, self.config.logit_soft_cap).reshape(*tokens_BS.shape, -1)

    @property
    def dtype(self) -> jnp.dtype:
        """The compute dtype: of activations and of the weights' copies in matmuls."""
        fallback = "float32" if platform() == "cpu" else "bfloat16"
        return jnp.dtype(self.compute.dtype or fallback)

    def cast(self, params: Params) -> Params:
        """The stacks of blocks, their matrices in the compute dtype."""

        def one(parameter: jax.Array, role: Role) -> jax.Array:
            return parameter if role in IN_FLOAT32 else parameter.astype(self.dtype)

        roles = self.roles()
        return {name: jax.tree.map(one, params[name], roles[name]) for name in self.stacks()}

    def declared(self, module: Part) -> tuple[Any, nnx.State]:
        """The module's definition and abstract parameters; draws nothing."""
        return nnx.split(nnx.eval_shape(lambda: module(self, nnx.Rngs(params=jax.random.key(0)))))


def soft_cap(x: jax.Array, cap: float | None) -> jax.Array:
    """c · tanh(x / c); x itself without a cap."""
    return x if cap is None else cap * jnp.tanh(x / cap)
