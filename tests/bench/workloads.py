"""What is trained in the benchmarks: shapes, hyper-parameters and texts. Both sides read the same
tokens by the engine's sampler, in the same order, and start from the same parameters."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.config.schema import ComputeConfig, ModelConfig, TrainConfig
from engine.data.lab_texts import read_text
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore
from engine.data.tokenize import Tokenizer, byte_tokenizer, train_bpe

SEED = 3
BPE_TEXT = 2**22  # characters that the vocabulary is made from


class Workload(NamedTuple):
    """A model, and how it is trained. `train` is a whole normal run; a benchmark measures a part
    of it."""

    model: ModelConfig
    train: TrainConfig
    compute: ComputeConfig = ComputeConfig()


WORKLOADS = {
    "1M": Workload(
        ModelConfig(hidden_dim=128, intermediate_dim=352, num_layers=4, num_heads=4, seq_len=256),
        TrainConfig(train_batch_size=16, num_train_steps=10_000, learning_rate=3e-3, warmup=100),
    ),
    "10M": Workload(
        ModelConfig(
            hidden_dim=320,
            intermediate_dim=864,
            num_layers=6,
            num_heads=5,
            seq_len=256,
            vocab_size=4096,
        ),
        TrainConfig(train_batch_size=8, num_train_steps=10_000, learning_rate=1e-3, warmup=100),
    ),
}


def build_store(workload: Workload, folder: Path) -> None:
    """Write the text as tokens to `folder`: Python's standard library, as bytes, or in a byte-level
    BPE of the model's vocabulary that is trained on the spot."""
    text = read_text("stdlib", None).train.decode()
    vocab_size = workload.model.vocab_size
    tokenizer: Tokenizer = byte_tokenizer()
    if vocab_size != tokenizer.vocab_size:
        tokenizer = train_bpe([text[:BPE_TEXT]], vocab_size)
    TokenStore.build(folder, [text], tokenizer)


def sampler(workload: Workload, folder: Path) -> Sampler:
    """The workload's batches, from the store in `folder`, held in memory."""
    store = TokenStore.open(folder).load()
    return Sampler(store, SEED, workload.train.train_batch_size, workload.model.seq_len)


def every_row(workload: Workload) -> np.ndarray:
    return np.arange(workload.train.train_batch_size)
