"""The engine's decoder and its AdamW once more in PyTorch, written as someone would who wants them
fast: what the engine's speed is compared with. Queries, keys and values are one matmul, gate and up
another; attention, the norms and AdamW are PyTorch's fused ones. `test_bench.py` shows that it is
the same function and makes the same step."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from engine.config.schema import ModelConfig, TrainConfig, span_steps

INIT_STD = 0.02

Batch = tuple[torch.Tensor, ...]  # inputs and targets (B, S), and a mask if there is one
Loss = Callable[..., torch.Tensor]


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, H, K, h = config.hidden_dim, config.num_heads, config.num_kv_heads, config.head_dim
        self.heads = H, K, h
        self.epsilon = config.norm_epsilon
        self.attention_norm = nn.Parameter(torch.ones(D))
        self.qkv_proj = nn.Linear(D, (H + 2 * K) * h, bias=False)
        self.o_proj = nn.Linear(H * h, D, bias=False)
        self.mlp_norm = nn.Parameter(torch.ones(D))
        self.gate_up_proj = nn.Linear(D, 2 * config.intermediate_dim, bias=False)
        self.down_proj = nn.Linear(config.intermediate_dim, D, bias=False)

    def forward(
        self, x_BSD: torch.Tensor, turns: tuple[torch.Tensor, ...], mask: torch.Tensor | None
    ) -> torch.Tensor:
        x_BSD = x_BSD + self.attention(norm(x_BSD, self.attention_norm, self.epsilon), turns, mask)
        return x_BSD + self.mlp(norm(x_BSD, self.mlp_norm, self.epsilon))

    def attention(
        self, x_BSD: torch.Tensor, turns: tuple[torch.Tensor, ...], mask: torch.Tensor | None
    ) -> torch.Tensor:
        H, K, h = self.heads
        B, S, _ = x_BSD.shape
        qkv_BNSh = self.qkv_proj(x_BSD).view(B, S, H + 2 * K, h).transpose(1, 2)
        qk_BNSh, v_BKSh = qkv_BNSh.split((H + K, K), dim=1)
        q_BHSh, k_BKSh = rotate(qk_BNSh, *turns).split((H, K), dim=1)
        o_BHSh = F.scaled_dot_product_attention(
            q_BHSh, k_BKSh, v_BKSh, attn_mask=mask, is_causal=mask is None, enable_gqa=H != K
        )
        return self.o_proj(o_BHSh.transpose(1, 2).reshape(B, S, H * h))

    def mlp(self, x_BSD: torch.Tensor) -> torch.Tensor:
        gate_BSF, up_BSF = self.gate_up_proj(x_BSD).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate_BSF) * up_BSF)


class Decoder(nn.Module):
    """The whole model. Called with inputs and targets (B, S), it returns the mean loss in nats over
    the targets that are not −1. A mask (B, 1, S, S) says which positions see which, in the place of
    all earlier ones."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        D, V, half = config.hidden_dim, config.vocab_size, config.head_dim // 2
        self.embedding = nn.Embedding(V, D)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = nn.Parameter(torch.ones(D))
        self.lm_head = nn.Linear(D, V, bias=False)
        angle_Si = np.arange(config.seq_len)[:, None] * config.rope_theta ** (
            -np.arange(half) / half
        )
        self.register_buffer("cos_Si", torch.tensor(np.cos(angle_Si), dtype=torch.float32))
        self.register_buffer("sin_Si", torch.tensor(np.sin(angle_Si), dtype=torch.float32))
        for name, weight in self.named_parameters():
            into_stream = "o_proj" in name or "down_proj" in name
            std = INIT_STD / (2 * config.num_layers) ** 0.5 if into_stream else INIT_STD
            if weight.ndim == 2:
                nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)

    def forward(
        self, inputs_BS: torch.Tensor, targets_BS: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        logits_BSV = self.logits(inputs_BS, mask).flatten(0, 1).float()
        return F.cross_entropy(logits_BSV, targets_BS.flatten(), ignore_index=-1)

    def logits(self, inputs_BS: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        S = inputs_BS.shape[1]
        x_BSD = self.embedding(inputs_BS)
        for block in self.blocks:
            x_BSD = block(x_BSD, (self.cos_Si[:S], self.sin_Si[:S]), mask)
        return self.lm_head(norm(x_BSD, self.final_norm, self.config.norm_epsilon))


def norm(x: torch.Tensor, gain: torch.Tensor, epsilon: float) -> torch.Tensor:
    return F.rms_norm(x, gain.shape, gain, epsilon)


def rotate(x_BNSh: torch.Tensor, cos_Si: torch.Tensor, sin_Si: torch.Tensor) -> torch.Tensor:
    """Rotary positions, half-split."""
    a, b = x_BNSh.chunk(2, dim=-1)
    return torch.cat((a * cos_Si - b * sin_Si, b * cos_Si + a * sin_Si), dim=-1).to(x_BNSh.dtype)


def load(decoder: Decoder, params: dict[str, Any]) -> None:
    """Give `decoder` the engine's parameters: the tree of `engine.model.decoder.Decoder.init` as
    NumPy arrays. The engine's matrices are (in, out) and PyTorch's (out, in)."""

    def copy(into: torch.Tensor, *parts: np.ndarray) -> None:
        into.copy_(torch.from_numpy(np.concatenate(parts, axis=-1).T.copy()))

    attention, mlp = params["blocks"]["attention"], params["blocks"]["mlp"]
    with torch.no_grad():
        copy(decoder.embedding.weight, params["embedding"].T)
        copy(decoder.lm_head.weight, params["lm_head"])
        copy(decoder.final_norm, params["final_norm"]["gain"])
        for i, block in enumerate(decoder.blocks):
            copy(block.attention_norm, params["blocks"]["attention_norm"]["gain"][i])
            copy(block.mlp_norm, params["blocks"]["mlp_norm"]["gain"][i])
            qkv = (attention[name][i] for name in ("q_proj", "k_proj", "v_proj"))
            copy(block.qkv_proj.weight, *qkv)
            copy(block.o_proj.weight, attention["o_proj"][i])
            copy(block.gate_up_proj.weight, mlp["gate_proj"][i], mlp["up_proj"][i])
            copy(block.down_proj.weight, mlp["down_proj"][i])


def adamw(decoder: Decoder, config: TrainConfig, fused: bool = True) -> torch.optim.AdamW:
    """PyTorch's fused AdamW; gains do not decay."""
    weights = list(decoder.parameters())
    groups = [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [w for w in weights if w.ndim == 1], "weight_decay": 0.0},
    ]
    betas = config.beta1, config.beta2
    return torch.optim.AdamW(groups, config.learning_rate, betas, config.epsilon, fused=fused)


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of step 1 … num_train_steps, for the schedules that the benchmarks use: linear and
    cosine, as `engine.training.optim.rates` has them."""
    rising = span_steps(config.warmup, config.num_train_steps)
    after = config.num_train_steps - rising
    if step <= rising:
        return config.learning_rate * step / rising
    if config.lr_schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * (step - rising - 1) / after)) / 2
    assert config.lr_schedule == "linear"
    return config.learning_rate * (config.num_train_steps - step + 1) / after


def train(
    decoder: Decoder,
    loss: Loss,
    config: TrainConfig,
    batches: Iterator[Batch],
) -> Iterator[float]:
    """One step after another; yields each step's loss before the update. `loss` is `decoder` as it
    is to be called: itself, or compiled."""
    optimizer = adamw(decoder, config)
    for step, batch in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        value = loss(*batch)
        value.backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), config.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield value.item()
