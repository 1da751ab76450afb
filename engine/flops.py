"""What a model costs, counted from its shape alone: parameters and FLOPs. The lab counts with
these functions for everybody, so that costs on a board mean the same thing."""

from engine.config import ModelConfig


def parameters(model: ModelConfig) -> int:
    """Weights of the model, embeddings included; a tied output matrix counts once."""
    hidden, kv_dim = model.hidden_dim, model.num_kv_heads * model.head_dim
    attention = 2 * hidden * hidden + 2 * hidden * kv_dim
    block = attention + 3 * hidden * model.intermediate_dim + 2 * hidden
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    return embeddings + model.num_layers * block + hidden


def forward_flops_per_token(model: ModelConfig) -> int:
    """FLOPs of the forward pass for one token, as Marin's speedrun counts them.

    A multiply and an add are 2 FLOPs. Attention counts the full square without causal halving,
    and 3 for each score's softmax; the embedding's look-up, norms and rotations count nothing.
    """
    hidden, seq_len = model.hidden_dim, model.seq_len
    heads, head_dim = model.num_heads, model.head_dim
    mlp = 2 * 3 * hidden * model.intermediate_dim
    qkv = 2 * hidden * (heads + 2 * model.num_kv_heads) * head_dim
    out = 2 * hidden * hidden
    attention = (
        2 * seq_len * heads * head_dim + 3 * seq_len * heads + 2 * seq_len * head_dim * heads
    )
    return model.num_layers * (mlp + qkv + out + attention) + 2 * hidden * model.vocab_size


def model_flops(model: ModelConfig, tokens: int) -> int:
    """FLOPs of training on `tokens` tokens: the backward pass costs two forward passes."""
    return 3 * forward_flops_per_token(model) * tokens
