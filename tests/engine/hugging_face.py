"""The real thing that exchange is tested against: transformers and torch, offline, one thread."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
}


def fresh(kind: str, seed: int = 5, **fields: Any) -> Any:
    """A model of this `model_type` as transformers initialises it, but with gains and biases that
    matter."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **{**SHAPE, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, x in model.named_parameters():
            if name.endswith("norm.weight"):
                x.mul_(torch.rand_like(x) + 0.5)
            if name.endswith("bias"):
                x.copy_(torch.randn_like(x) / 2)
    return model.eval()


def load(folder: Path) -> Any:
    """The model in `folder`, as anybody would load it. Nothing may be missing or left over."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(report.values()), report
    return model.eval()


def logits_of(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    def logits(tokens_BS: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(tokens_BS).long()).logits.float().numpy()

    return logits


def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)
