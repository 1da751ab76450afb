"""What a model costs: parameters and FLOPs, counted from its shape alone. The lab counts every
model with these functions, so costs on a leaderboard are comparable."""

from engine.config.schema import ModelConfig


def parameters(model: ModelConfig, active: bool = False) -> int:
    """Weights of the model, embeddings included; a tied output matrix counts once. Query and key
    norms have weights (head_dim each, in every layer) only if they are learned. Of experts all
    count, or with `active` only as many as a token goes through; what balances them counts
    nothing."""
    hidden, head_dim = model.hidden_dim, model.head_dim
    attention = 2 * hidden * (model.num_heads + model.num_kv_heads) * head_dim
    norms = 2 * hidden + (2 * head_dim if model.qk_norm == "learned" else 0)
    width, router = _mlp(model, active)
    block = attention + 3 * hidden * width + hidden * router + norms
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    return embeddings + model.num_layers * block + hidden


def _mlp(model: ModelConfig, active: bool) -> tuple[int, int]:
    """The width inside a block's MLPs, of all experts or of those of one token, and the router's
    outputs."""
    if not (moe := model.moe):
        return model.intermediate_dim, 0
    width = model.intermediate_dim if active else moe.num_experts * moe.expert_dim + moe.shared_dim
    return width, moe.num_experts


def forward_flops_per_token(model: ModelConfig, active: bool = True) -> int:
    """FLOPs of the forward pass for one token, as Marin's speedrun counts them.

    A multiply and an add are 2 FLOPs. Attention counts the full square without causal halving, and
    3 for each score's softmax; where a sliding window hides the rest, sliding_window keys for each
    query instead of seq_len. The output matrix counts whether or not it is tied. The embedding's
    look-up, all norms (of queries and keys too), rotations and the soft-cap count nothing, and
    neither does what is computed again in the backward pass (remat). Of experts those count that a
    token goes through, and the router; not what pads their blocks. Without `active` all experts
    count, as if they were one MLP.
    """
    hidden, heads, head_dim = model.hidden_dim, model.num_heads, model.head_dim
    keys = model.sliding_window or model.seq_len
    width, router = _mlp(model, active)
    mlp = 2 * hidden * (3 * width + router)
    qkv = 2 * hidden * (heads + 2 * model.num_kv_heads) * head_dim
    out = 2 * heads * head_dim * hidden
    attention = 2 * keys * heads * head_dim + 3 * keys * heads + 2 * keys * head_dim * heads
    return model.num_layers * (mlp + qkv + out + attention) + 2 * hidden * model.vocab_size


def model_flops(model: ModelConfig, tokens: int) -> int:
    """FLOPs of training on `tokens` tokens: the backward pass costs two forward passes."""
    return 3 * forward_flops_per_token(model) * tokens
