"""Tokens per second of generation beside `transformers`' `generate`: `python -m
tests.bench.generation`. One model, exported by the lab and loaded by both; the same prompts, the
same two cores, greedy, batches of 1 and of 8. Each side is a process of its own that waits for its
turn; the order shifts from round to round. It does not wait for a quiet machine: the turns are
short, and both sides meet the same load, which is reported. All tokens are compared. Writes
`results/generation.json` and `generation.md`."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from engine.config.schema import ModelConfig
from tests.bench.cpu import CORES, REST, RESULTS, machine

GOAL = 3.0  # how many times as fast as `transformers` generation is to be
BATCHES = (1, 8)
PROMPT = 64  # tokens
SIDES = ("engine", "transformers, 2 threads", "transformers, 1 thread")
MODELS = {
    "1M": ModelConfig(
        hidden_dim=128, intermediate_dim=352, num_layers=4, num_heads=4, seq_len=512
    ),
    "10M": ModelConfig(
        hidden_dim=320, intermediate_dim=864, num_layers=6, num_heads=5, seq_len=512,
        vocab_size=4096,
    ),
}  # fmt: skip


def write_model(config: ModelConfig, folder: Path) -> None:
    """Export a model as it is initialised, but larger, so that its most likely token is clear."""
    import jax

    from engine.model.decoder import Decoder
    from engine.training.export import export

    decoder = Decoder(config)
    params = jax.jit(decoder.init)(jax.random.key(0))
    export(folder, decoder, jax.tree.map(lambda x: np.asarray(x * 3), params))


def prompts(vocab_size: int, batch: int) -> np.ndarray:
    """(batch, PROMPT) tokens."""
    return np.random.default_rng(batch).integers(0, vocab_size, (batch, PROMPT)).astype(np.int32)


Generate = Callable[[np.ndarray, int], np.ndarray]  # (tokens (B, P), count) -> (B, count)


def by_the_engine(folder: Path) -> Generate:
    import jax

    from engine.model.decoder import Decoder
    from engine.model.generation import Prompt, Sampling, generate
    from engine.training.pretrained import read

    config, params = read(folder, None)
    decoder, placed = Decoder(config), jax.device_put(params)

    def made(tokens_BP: np.ndarray, count: int) -> np.ndarray:
        asked = [Prompt(row, 0, n) for n, row in enumerate(tokens_BP)]
        found = generate(decoder, placed, asked, count, Sampling(temperature=0))
        return np.stack([one.tokens for one in found])

    return made


def by_transformers(folder: Path, threads: int) -> Generate:
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()

    def made(tokens_BP: np.ndarray, count: int) -> np.ndarray:
        ids = torch.from_numpy(tokens_BP).long()
        with torch.inference_mode():
            found = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count
            )
        return found[:, PROMPT:].numpy().astype(np.int32)

    return made


def side(name: str, folder: Path, count: int, vocab_size: int) -> None:
    """Answer each batch size on stdin with seconds and tokens, after a first call that compiles."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    threads = CORES if name == SIDES[1] else 1
    generate = by_the_engine(folder) if name == SIDES[0] else by_transformers(folder, threads)
    for batch in BATCHES:
        generate(prompts(vocab_size, batch), count)
    print("ready", flush=True)
    for line in sys.stdin:
        tokens_BP = prompts(vocab_size, int(line))
        began = time.perf_counter()
        made = generate(tokens_BP, count)
        print(json.dumps([time.perf_counter() - began, made.tolist()]), flush=True)


def measure(config: ModelConfig, count: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Tokens per second of each side, by batch, in each round; and the share of equal tokens."""
    write_model(config, folder / "model")
    speeds: dict[str, dict[str, list[float]]] = {str(b): {s: [] for s in SIDES} for b in BATCHES}
    equal: dict[str, float] = {}
    with ExitStack() as stack:
        children = {name: stack.enter_context(_child(name, folder, count, config.vocab_size))
                    for name in SIDES}  # fmt: skip
        for child in children.values():
            assert _line(child) == "ready"
        for number in range(rounds):
            for batch in BATCHES:
                made = {}
                for name in (*SIDES[number % 3 :], *SIDES[: number % 3]):
                    time.sleep(REST)  # in which idle threads of the last turn go to sleep
                    child = children[name]
                    assert child.stdin
                    child.stdin.write(f"{batch}\n")
                    child.stdin.flush()
                    seconds, made[name] = json.loads(_line(child))
                    speeds[str(batch)][name].append(round(batch * count / seconds, 1))
                ours = np.array(made[SIDES[0]])
                same = [ours == np.array(made[name]) for name in SIDES[1:]]
                equal[str(batch)] = float(np.mean(same))
            print(f"round {number + 1}: {speeds}", flush=True)
        for child in children.values():
            assert child.stdin
            child.stdin.close()
    return {"tokens": count, "prompt": PROMPT, "per_second": speeds, "equal": equal}


def _child(name: str, folder: Path, count: int, vocab_size: int) -> "subprocess.Popen[str]":
    given = [name, str(folder / "model"), str(count), str(vocab_size)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.generation", "side", *given],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "NPROC": str(CORES), "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout
    return child.stdout.readline().strip() or sys.exit("a side ended")


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """How many times as fast the engine is as the faster other side, by batch."""
    medians = {
        batch: [statistics.median(of[name]) for name in SIDES]
        for batch, of in found["per_second"].items()
    }
    return {batch: ours / max(theirs) for batch, (ours, *theirs) in medians.items()}


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        f"tokens per second, median (least); load average {results['load'][0]:.1f} before and "
        f"{results['load'][1]:.1f} after, on {results['machine']['cores']} cores",
        "",
        f"| model | batch | {' | '.join(SIDES)} | engine / faster other | equal tokens |",
        f"| --- | ---: |{' ---: |' * (len(SIDES) + 2)}",
    ]
    for name, found in results["generation"].items():
        for batch, of in found["per_second"].items():
            cells = [f"{statistics.median(of[s]):,.0f} ({min(of[s]):,.0f})" for s in SIDES]
            ratio, equal = ratios(found)[batch], found["equal"][batch]
            row = (name, batch, *cells, f"{ratio:.1f}×", f"{equal:.1%}")
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    before, found = os.getloadavg()[0], {}
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(MODELS[name], options.tokens, options.rounds, Path(folder))
    results = {
        "machine": machine("jax", "transformers", "torch"),
        "load": [before, os.getloadavg()[0]],
        "generation": found,
    }
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "generation.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "generation.md").write_text(table(results))
    print(table(results))
    every = [ratio for one in found.values() for ratio in ratios(one).values()]
    if min(every) < GOAL:
        print(f"generation is not {GOAL}× as fast as transformers everywhere")
    if any(equal < 1 for one in found.values() for equal in one["equal"].values()):
        sys.exit("the sides drew different tokens")


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        side(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
