"""How fast tasks are scored beside lm_eval's own `hf` backend: the same exported model, the same
items, both through lm_eval, in turns. Runs in the tests' environment:
`python -m tests.bench.scoring`.

Prints seconds per round of each side and the median of the rounds' ratios, with the machine's load.
The first round compiles and does not count. Ends if log-likelihoods differ by more than 1e-3."""

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from engine.config.schema import ModelConfig
from engine.data.tokenize import train_bpe
from engine.model.decoder import Decoder
from engine.training.export import export
from runner.worker.scores.answers import _OfTheLab
from runner.worker.scores.lm_eval_tasks import _asking

ROUNDS, ITEMS, CHOICES, BATCH = 5, 30, 4, 16
CONFIG = ModelConfig(
    hidden_dim=128, intermediate_dim=384, num_layers=4, num_heads=4, seq_len=256, vocab_size=1024
)


def main() -> None:
    from lm_eval.models.huggingface import HFLM

    text = Path(json.__file__).read_text() * 9
    tokenizer = train_bpe([text], CONFIG.vocab_size)
    decoder = Decoder(CONFIG)
    params = decoder.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    asked: list[Any] = []
    for start in rng.integers(0, len(text) - 600, ITEMS):
        context = text[start : start + int(rng.integers(50, 400))]
        for at in rng.integers(0, len(text) - 60, CHOICES):
            asked.append(
                SimpleNamespace(args=(context, " " + text[at : at + int(rng.integers(5, 40))]))
            )
    with tempfile.TemporaryDirectory() as place:
        export(Path(place, "model"), decoder, params, tokenizer)
        theirs = HFLM(pretrained=f"{place}/model", device="cpu", dtype="float32", batch_size=BATCH)
    sides = {"lab": _asking(_OfTheLab(decoder, params), tokenizer), "hf": theirs}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        found = {}
        for name in sorted(sides, reverse=turn % 2 == 1):
            start = time.perf_counter()
            found[name] = sides[name].loglikelihood(asked, disable_tqdm=True)
            seconds[name].append(time.perf_counter() - start)
        np.testing.assert_allclose(*([x[0] for x in of] for of in found.values()), atol=1e-3)
        assert [x[1] for x in found["lab"]] == [x[1] for x in found["hf"]]
    ratios = [b / a for a, b in zip(seconds["lab"][1:], seconds["hf"][1:], strict=True)]
    print(json.dumps({
        "requests": len(asked),
        "first_round": {name: round(of[0], 2) for name, of in seconds.items()},
        "rounds": {name: [round(x, 3) for x in of[1:]] for name, of in seconds.items()},
        "ratio": round(statistics.median(ratios), 2),
        "lowest": round(min(ratios), 2),
        "load": os.getloadavg(),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
