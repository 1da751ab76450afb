"""Trains the tests' tiny model in a process of its own: `one_run.py FOLDER [STEP]`. With STEP it
kills itself by SIGKILL at the moment when that step's checkpoint would become visible."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from engine.config import ModelConfig, TrainConfig
from engine.train import train


def main(folder: Path, model: str, config: str, tokens: Path, killed_at: str | None) -> None:
    rename = os.rename

    def rename_or_die(source: str, target: str, **options: int) -> None:
        if Path(target) == folder / str(killed_at):
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target, **options)

    os.rename = os.replace = rename_or_die
    for metrics in train(
        ModelConfig.model_validate_json(model),
        TrainConfig.model_validate_json(config),
        np.fromfile(tokens, np.uint8),
        seed=3,
        checkpoints=folder,
    ):
        print(metrics.step, flush=True)


if __name__ == "__main__":
    folder, model, config, tokens, *killed_at = sys.argv[1:]
    main(Path(folder), model, config, Path(tokens), *(killed_at or [None]))
