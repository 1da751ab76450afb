"""Trains the tests' tiny model in a process of its own:
`one_run.py FOLDER MODEL CONFIG TOKENS [WHEN STEP]`, the configurations as JSON. With WHEN it kills
itself by SIGKILL: `computing`, when the metrics of STEP are known, or `saving`, at the moment when
that step's checkpoint would become visible."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore
from engine.model.decoder import Decoder
from engine.training.train import train


def sampler_of(tokens: np.ndarray, config: TrainConfig, seq_len: int) -> Sampler:
    """Of all tokens; where phases weigh, of the first half, and then of both as is said."""
    weighed = [(of.at, list(of.weights.values())) for of in config.phases if of.weights]
    size = config.batch_sizes, seq_len
    if not weighed:
        return Sampler(tokens, 3, *size)
    halves = [TokenStore.of(half) for half in np.array_split(tokens, 2)]
    return Sampler([(halves[0], 1), (halves[1], 0)], 3, *size, block=4, phases=weighed)


def main(folder: Path, model_json: str, config_json: str, tokens: Path, when: str, at: str) -> None:
    model = ModelConfig.model_validate_json(model_json)
    config = TrainConfig.model_validate_json(config_json)
    sampler = sampler_of(np.fromfile(tokens, np.uint8), config, model.seq_len)
    if when == "saving":
        _die_when_visible(folder / at)
    for metrics in train(Decoder(model), config, sampler, seed=3, checkpoints=folder):
        print(metrics.step, flush=True)
        if when == "computing" and metrics.step == int(at):
            os.kill(os.getpid(), signal.SIGKILL)


def _die_when_visible(checkpoint: Path) -> None:
    rename = os.rename

    def rename_or_die(source: str, target: str, **options: int) -> None:
        if Path(target) == checkpoint:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target, **options)

    os.rename = os.replace = rename_or_die


if __name__ == "__main__":
    folder, model, config, tokens, *death = sys.argv[1:]
    main(Path(folder), model, config, Path(tokens), *(death or ["never", ""]))
