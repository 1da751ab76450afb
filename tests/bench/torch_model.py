"""The engine's decoder and its AdamW once more in PyTorch, as someone would write them who wants
them fast: what the engine's speed is compared with. Queries, keys and values are one matmul, gate
and up another, attention is PyTorch's fused one, and so is AdamW. `test_bench.py` holds the two
equal, function and update."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from engine.config import ModelConfig, TrainConfig

INIT_STD = 0.02


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, F_, h = config.hidden_dim, config.intermediate_dim, config.head_dim
        self.heads = config.num_heads, config.num_kv_heads, h
        self.attention_norm = nn.Parameter(torch.ones(D))
        self.qkv_proj = nn.Linear(D, (config.num_heads + 2 * config.num_kv_heads) * h, bias=False)
        self.o_proj = nn.Linear(config.num_heads * h, D, bias=False)
        self.mlp_norm = nn.Parameter(torch.ones(D))
        self.gate_up_proj = nn.Linear(D, 2 * F_, bias=False)
        self.down_proj = nn.Linear(F_, D, bias=False)

    def forward(self, x_BSD: torch.Tensor, turn: tuple[torch.Tensor, ...]) -> torch.Tensor:
        x_BSD = x_BSD + self.attention(norm(x_BSD, self.attention_norm), turn)
        return x_BSD + self.mlp(norm(x_BSD, self.mlp_norm))

    def attention(self, x_BSD: torch.Tensor, turn: tuple[torch.Tensor, ...]) -> torch.Tensor:
        H, K, h = self.heads
        B, S, _ = x_BSD.shape
        qkv_BNSh = self.qkv_proj(x_BSD).view(B, S, H + 2 * K, h).transpose(1, 2)
        q_k, v_BKSh = qkv_BNSh.split((H + K, K), dim=1)  # queries and keys turn together
        q_BHSh, k_BKSh = rotate(q_k, *turn).split((H, K), dim=1)
        o_BHSh = F.scaled_dot_product_attention(
            q_BHSh, k_BKSh, v_BKSh, is_causal=True, enable_gqa=H != K
        )
        return self.o_proj(o_BHSh.transpose(1, 2).reshape(B, S, H * h))

    def mlp(self, x_BSD: torch.Tensor) -> torch.Tensor:
        gate_BSF, up_BSF = self.gate_up_proj(x_BSD).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate_BSF) * up_BSF)


class Decoder(nn.Module):
    """The whole model. Called with tokens and targets (B, S), it returns the mean loss in nats."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, V = config.hidden_dim, config.vocab_size
        self.config = config
        self.embedding = nn.Embedding(V, D)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = nn.Parameter(torch.ones(D))
        self.lm_head = nn.Linear(D, V, bias=False)
        angle_Si = np.arange(config.seq_len)[:, None] * 10_000.0 ** (
            -np.arange(config.head_dim // 2) / (config.head_dim // 2)
        )
        self.register_buffer("cos", torch.tensor(np.cos(angle_Si), dtype=torch.float32))
        self.register_buffer("sin", torch.tensor(np.sin(angle_Si), dtype=torch.float32))
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                into_stream = "o_proj" in name or "down_proj" in name
                std = INIT_STD / (2 * config.num_layers) ** 0.5 if into_stream else INIT_STD
                nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)

    def forward(self, tokens_BS: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.logits(tokens_BS).flatten(0, 1).float(), targets_BS.flatten())

    def logits(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        S = tokens_BS.shape[1]
        x_BSD = self.embedding(tokens_BS)
        turn = self.cos[:S].to(x_BSD.dtype), self.sin[:S].to(x_BSD.dtype)
        for block in self.blocks:
            x_BSD = block(x_BSD, turn)
        return self.lm_head(norm(x_BSD, self.final_norm))


def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, gain.shape, gain, 1e-5)


def rotate(x_BNSh: torch.Tensor, cos_Si: torch.Tensor, sin_Si: torch.Tensor) -> torch.Tensor:
    a, b = x_BNSh.chunk(2, dim=-1)
    return torch.cat((a * cos_Si - b * sin_Si, b * cos_Si + a * sin_Si), dim=-1)
