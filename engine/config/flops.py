"""What a model costs: parameters and FLOPs, counted from its shape alone. The lab counts every
model with these functions, so costs on a leaderboard are comparable."""

import math

from engine.config.schema import LayerKind, ModelConfig
from engine.config.shapes import shapes

CHUNK = 64  # positions that a linear layer takes together


def parameters(model: ModelConfig, active: bool = False) -> int:
    """Weights of the model, embeddings included; a tied output matrix counts once. Query and key
    norms have weights only if they are learned (or whole). Of experts all
    count, or with `active` only as many as a token goes through; what balances them counts
    nothing."""
    moe, total = model.moe, sum(math.prod(shape) for shape in shapes(model).values())
    if not moe:
        return total
    total -= model.num_layers * (2 * moe.num_experts + 1)
    inner, others = moe.latent_dim or model.hidden_dim, moe.num_experts - moe.top_k
    return total - (model.num_layers * 3 * inner * moe.expert_dim * others if active else 0)


def _mlp(model: ModelConfig, active: bool) -> int:
    """Weights of a block's MLP, of all experts or of those of one token, with the router's."""
    hidden = model.hidden_dim
    if not (moe := model.moe):
        return 3 * hidden * model.intermediate_dim
    experts, inner = moe.top_k if active else moe.num_experts, moe.latent_dim or hidden
    into = 2 * hidden * inner if moe.latent_dim else 0
    shared, router = 3 * hidden * moe.shared_dim, hidden * moe.num_experts
    return 3 * inner * moe.expert_dim * experts + into + shared + router


def forward_flops_per_token(model: ModelConfig, active: bool = True) -> int:
    """FLOPs of the forward pass for one token, as Marin's speedrun counts them.

    A multiply and an add are 2 FLOPs. Attention counts the full square without causal halving, and
    3 for each score's softmax; where a sliding window hides the rest, sliding_window keys for each
    query instead of seq_len. The output matrix counts whether or not it is tied. The embedding's
    look-up, biases, all norms (of queries and keys too), rotations and the soft-cap count nothing,
    and neither does what is computed again in the backward pass (remat). Of experts those count
    that a token goes through, and the router; not what pads their blocks. Without `active` all
    experts count, as if they were one MLP. Of the parts of a block the matrices of gates count;
    what works on each number alone (gates' products, exclusive attention, short convolutions)
    counts nothing. Linear layers: see `delta_flops`.
    """
    hidden, kinds = model.hidden_dim, model.kind_counts
    gate = 4 * hidden * (model.gated_norm or 0)  # of one norm; a block has two, and so have ends
    block = 2 * _mlp(model, active) + 2 * gate
    linear = kinds.pop("linear", 0)
    attention = sum(layers * _attention(model, kind) for kind, layers in kinds.items())
    projections = 2 * hidden * model.num_heads * (5 * model.head_dim + 2)
    mixing = attention + linear * projections + delta_flops(model, linear)
    return model.num_layers * block + mixing + 2 * gate + 2 * hidden * model.vocab_size


def _attention(model: ModelConfig, kind: LayerKind) -> int:
    """Of one layer of attention."""
    hidden, heads, head_dim = model.hidden_dim, model.num_heads, model.head_dim
    keys = (model.sliding_window if kind == "window" else None) or model.seq_len
    qkv = 2 * hidden * (heads + 2 * model.num_kv_heads) * head_dim
    out = 2 * heads * head_dim * hidden
    gate = 2 * hidden * heads if model.attention_gate else 0
    return qkv + out + gate + 4 * keys * heads * head_dim + 3 * keys * heads


def chunk(seq_len: int) -> int:
    """How many positions a linear layer takes together: a power of two."""
    return min(CHUNK, 1 << (seq_len - 1).bit_length())


def delta_flops(model: ModelConfig, layers: int) -> int:
    """Of the gated delta rule in so many linear layers, for one token. In chunks of C positions and
    heads of h dimensions, a token of a head costs

        10·C·h         five products between the positions of a chunk
        6·h²           three with the state
        2·(C² − 1)/3   the inverse of a triangular matrix, by halves
        3·(C + 2)      exponentials of decays, counted as a softmax's

    and a head one more exponential for each window. It computes whole chunks, so that a seq_len
    that is not a multiple of C costs more."""
    C, h, S = chunk(model.seq_len), model.head_dim, model.seq_len
    padded = 10 * C * h + 6 * h**2 + 2 * (C**2 - 1) // 3 + 3 * (C + 1)
    each = -(-S // C) * C * padded + 3 * (S + 1)  # exponentials before the padding
    return -(-layers * model.num_heads * each // S)


def model_flops(model: ModelConfig, tokens: int) -> int:
    """FLOPs of training on `tokens` tokens: the backward pass costs two forward passes."""
    return 3 * forward_flops_per_token(model) * tokens
