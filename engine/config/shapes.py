"""The names and shapes of a model's parameters, from its configuration alone. Needs no JAX, so a
plan can check whether one model continues from another."""

from collections import Counter

from engine.config.schema import LayerKind, ModelConfig

Shapes = dict[str, tuple[int, ...]]
LINEAR_TAPS = 4  # of the convolutions in a linear layer


def stack(kind: LayerKind) -> str:
    """Where the parameters of layers of this kind are, one behind the other."""
    return "linear_blocks" if kind == "linear" else "blocks"


def shapes(model: ModelConfig) -> Shapes:
    """{path: shape} of the parameters that `engine.model.decoder.Decoder` has; those of blocks
    begin with the number of layers."""
    hidden = model.hidden_dim
    found: Shapes = {"embedding": (model.vocab_size, hidden)} | _norm("final_norm", model)
    if model.gated_norm:
        found |= _norm("embedding_norm", model)
    if not model.tie_word_embeddings:
        found["lm_head"] = (hidden, model.vocab_size)
    rest = _norm("attention_norm", model) | _norm("mlp_norm", model) | _feed_forward(model)
    if taps := model.short_convolution:
        rest |= {"attention_conv": (taps, hidden), "mlp_conv": (taps, hidden)}
    stacks = Counter[str]()
    for kind, layers in model.kind_counts.items():
        stacks[stack(kind)] += layers
    for name, layers in stacks.items():
        mixing = _linear(model) if name == "linear_blocks" else _attention(model)
        block = {f"attention/{path}": of for path, of in mixing.items()} | rest
        found |= {f"{name}/{path}": (layers, *of) for path, of in block.items()}
    return found


def _norm(path: str, model: ModelConfig) -> Shapes:
    found: Shapes = {f"{path}/gain": (model.hidden_dim,)}
    if rank := model.gated_norm:
        found[f"{path}/down_proj"] = (model.hidden_dim, rank)
        found[f"{path}/up_proj"] = (rank, model.hidden_dim)
    return found


def _attention(model: ModelConfig) -> Shapes:
    hidden, head = model.hidden_dim, model.head_dim
    queries, keys = model.num_heads * head, model.num_kv_heads * head
    found: Shapes = {
        "q_proj": (hidden, queries),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "o_proj": (queries, hidden),
    }
    if model.attention_bias != "none":
        found |= {"q_bias": (queries,), "k_bias": (keys,), "v_bias": (keys,)}
    if model.attention_bias == "all":
        found["o_bias"] = (hidden,)
    if model.qk_norm in ("learned", "whole"):
        whole = model.qk_norm == "whole"
        found |= {"q_norm": (queries if whole else head,), "k_norm": (keys if whole else head,)}
    if model.attention_gate:
        found["gate"] = (hidden, model.num_heads)
    if taps := model.short_convolution:
        found["k_conv"] = (taps, keys)
    return found


def _linear(model: ModelConfig) -> Shapes:
    hidden, heads, width = model.hidden_dim, model.num_heads, model.num_heads * model.head_dim
    found: Shapes = {f"{name}_proj": (hidden, width) for name in ("q", "k", "v", "gate")}
    found |= {f"{name}_conv": (LINEAR_TAPS, width) for name in "qkv"}
    found |= {"rate": (hidden, heads), "decay": (hidden, heads), "norm": (model.head_dim,)}
    return found | {"decay_log": (heads,), "decay_bias": (heads,), "o_proj": (width, hidden)}


def _feed_forward(model: ModelConfig) -> Shapes:
    moe, hidden, inner = model.moe, model.hidden_dim, model.intermediate_dim
    found: Shapes = {}
    if moe:
        experts, inner = (moe.num_experts,), moe.shared_dim
        found |= _mlp("mlp", experts, moe.latent_dim or hidden, moe.expert_dim)
        if moe.latent_dim:
            found["mlp/latent_down_proj"] = (hidden, moe.latent_dim)
            found["mlp/latent_up_proj"] = (moe.latent_dim, hidden)
        found |= {"mlp/router": (hidden, *experts), "mlp/dropped": ()}
        found |= {"mlp/bias": experts, "mlp/load": experts}
    if inner:
        found |= _mlp("mlp/shared" if moe else "mlp", (), hidden, inner)
    return found


def _mlp(path: str, experts: tuple[int, ...], hidden: int, inner: int) -> Shapes:
    into, out = (*experts, hidden, inner), (*experts, inner, hidden)
    return {f"{path}/gate_proj": into, f"{path}/up_proj": into, f"{path}/down_proj": out}
