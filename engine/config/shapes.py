"""The names and shapes of a model's parameters, from its configuration alone. Needs no JAX, so a
plan can check whether one model continues from another."""

from engine.config.schema import ModelConfig

Shapes = dict[str, tuple[int, ...]]


def shapes(model: ModelConfig) -> Shapes:
    """{path: shape} of the parameters that `engine.model.decoder.Decoder` has; those of blocks
    begin with the number of layers."""
    hidden, inner, head = model.hidden_dim, model.intermediate_dim, model.head_dim
    queries, keys = model.num_heads * head, model.num_kv_heads * head
    block: Shapes = {
        "attention_norm/gain": (hidden,),
        "attention/q_proj": (hidden, queries),
        "attention/k_proj": (hidden, keys),
        "attention/v_proj": (hidden, keys),
        "attention/o_proj": (queries, hidden),
        "mlp_norm/gain": (hidden,),
    }
    if moe := model.moe:
        experts, inner = (moe.num_experts,), moe.shared_dim
        block |= _mlp("mlp", experts, hidden, moe.expert_dim)
        block |= {"mlp/router": (hidden, *experts), "mlp/dropped": ()}
        block |= {"mlp/bias": experts, "mlp/load": experts}
    if inner:
        block |= _mlp("mlp/shared" if moe else "mlp", (), hidden, inner)
    if model.qk_norm == "learned":
        block |= {"attention/q_norm": (head,), "attention/k_norm": (head,)}
    found: Shapes = {"embedding": (model.vocab_size, hidden), "final_norm/gain": (hidden,)}
    if not model.tie_word_embeddings:
        found["lm_head"] = (hidden, model.vocab_size)
    return found | {f"blocks/{name}": (model.num_layers, *of) for name, of in block.items()}


def _mlp(path: str, experts: tuple[int, ...], hidden: int, inner: int) -> Shapes:
    into, out = (*experts, hidden, inner), (*experts, inner, hidden)
    return {f"{path}/gate_proj": into, f"{path}/up_proj": into, f"{path}/down_proj": out}
