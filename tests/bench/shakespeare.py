"""The known task: Shakespeare by the character, 4 layers, 4 heads, width 128, context 64, batch 12,
2,000 steps. nanoGPT reports a validation loss of 1.88 nats for it. `python -m
tests.bench.shakespeare TEXT` trains the engine and the PyTorch model beside it in turns, each run
in a process of its own on the same two cores, on the same batches and from the same parameters.
TEXT is the million characters known as tinyshakespeare; REGATTA_TEST_SHAKESPEARE can name it too.

Seconds are those of training after the first step, which compiles. The parameters are kept every
200 steps, the engine's as its checkpoints on disk, PyTorch's in memory, and scored afterwards by
`engine.training.evaluate.score` on the whole last tenth of the text, in windows of 64 without
context. Writes `results/shakespeare.json`, `shakespeare.md` and the curves."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.config.schema import ModelConfig, TrainConfig
from engine.training.heap import keep_heap
from tests.bench import charts
from tests.bench.cpu import CORES, environment, machine
from tests.bench.sides import SIDES, read_params, write_params

RESULTS = Path(__file__).parent / "results"
SEED = 3
GOAL = 1.88  # nats per character
EVERY = 200  # steps, of which a default run keeps a checkpoint
NAMES = ("engine", "eager, heap kept", "compile, heap kept")

CONFIG = TrainConfig(
    train_batch_size=12,
    num_train_steps=2_000,
    learning_rate=2e-3,
    lr_schedule="cosine",
    warmup=100,
    beta2=0.99,
    checkpoint_every=EVERY,
    keep_every=EVERY,
)


class Task:
    """The text as numbers of its characters, in alphabetical order: nine tenths to train on and
    the last tenth to validate with."""

    def __init__(self, text: Path) -> None:
        letters = np.array(list(text.read_text(encoding="utf-8")))
        alphabet, tokens = np.unique(letters, return_inverse=True)
        tokens, cut = tokens.astype(np.uint16), len(tokens) * 9 // 10
        self.train, self.validation = tokens[:cut], tokens[cut:]
        self.model = ModelConfig(
            hidden_dim=128,
            intermediate_dim=352,
            num_layers=4,
            num_heads=4,
            seq_len=64,
            vocab_size=len(alphabet),
        )

    def sampler(self) -> Any:
        from engine.data.sampling import Sampler
        from engine.data.token_store import TokenStore

        store = TokenStore.of(self.train, vocab_size=self.model.vocab_size, bytes_per_token=1.0)
        return Sampler(store, SEED, CONFIG.train_batch_size, self.model.seq_len)

    def score(self, logits_of: Any) -> float:
        """Nats per character of the whole validation split, but for what fills no window."""
        from engine.data.scored_windows import validation_windows
        from engine.training.evaluate import score

        targets = (len(self.validation) - 1) // self.model.seq_len * self.model.seq_len
        windows = validation_windows(self.validation, self.model.seq_len, targets)
        return score(logits_of, *windows, batch_size=128).loss


# ── In the process of a side ─────────────────────────────────────────────────────────────────


def prepare(task: Task, folder: Path) -> None:
    """The parameters that all start from."""
    import jax

    from engine.model.decoder import Decoder

    params = jax.jit(Decoder(task.model).init)(jax.random.key(SEED))
    write_params(params, folder / "params.npz")


def engine(task: Task, folder: Path) -> dict[str, Any]:
    import jax

    from engine.model.decoder import Decoder
    from engine.training.evaluate import load_params
    from engine.training.train import train

    jax.config.update("jax_compilation_cache_dir", str(folder / "xla"))
    decoder, start = Decoder(task.model), read_params(folder / "params.npz")
    checkpoints = folder / "checkpoints"
    steps = train(decoder, CONFIG, task.sampler(), SEED, checkpoints, start_from=start)
    found = _timed(metrics.loss for metrics in steps)
    logits = jax.jit(decoder.logits)

    def score(step: int) -> float:
        params = load_params(checkpoints / str(step), decoder)
        return task.score(lambda tokens_BS: logits(params, tokens_BS))

    return _with_scores(found, score)


def pytorch(task: Task, folder: Path, compiled: bool) -> dict[str, Any]:
    import torch

    from engine.data.sampling import ahead
    from tests.bench import torch_model

    torch.set_num_threads(CORES)
    decoder, sampler = torch_model.Decoder(task.model), task.sampler()
    torch_model.load(decoder, read_params(folder / "params.npz"))
    loss = torch.compile(decoder, fullgraph=True) if compiled else decoder
    rows, kept = np.arange(CONFIG.train_batch_size), {}

    def read(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs_BS, targets_BS, _ = sampler.rows(step, rows)
        return torch.from_numpy(inputs_BS).long(), torch.from_numpy(targets_BS).long()

    def losses() -> Iterator[float]:
        batches = ahead(read, range(1, CONFIG.num_train_steps + 1))
        for step, value in enumerate(torch_model.train(decoder, loss, CONFIG, batches), start=1):
            if step % EVERY == 0:
                kept[step] = {name: x.clone() for name, x in decoder.state_dict().items()}
            yield value

    def score(step: int) -> float:
        decoder.load_state_dict(kept[step])
        with torch.no_grad():
            return task.score(
                lambda tokens_BS: decoder.logits(torch.from_numpy(tokens_BS).long()).numpy()
            )

    return _with_scores(_timed(losses()), score)


def _timed(losses: Iterable[float]) -> dict[str, Any]:
    """Train to the end: seconds of the first step, and after it until each one was known."""
    began, at, found = time.perf_counter(), [], []
    for loss in losses:
        at.append(time.perf_counter())
        found.append(loss)
    return {"first": at[0] - began, "seconds": [x - at[0] for x in at], "losses": found}


def _with_scores(found: dict[str, Any], score: Any) -> dict[str, Any]:
    kept = range(EVERY, CONFIG.num_train_steps + 1, EVERY)
    return {
        "first": found["first"],
        "seconds": found["seconds"][-1],
        "curve": [(step, found["seconds"][step - 1], score(step)) for step in kept],
        "losses": found["losses"][9::10],
    }


def child(name: str, text: Path, folder: Path) -> None:
    """One run, from its start to its scores; leaves what it found in `folder/found.json`."""
    if name == "prepare":
        prepare(Task(text), folder)
        return
    side = SIDES[name]
    if side.heap:
        keep_heap()
    task = Task(text)
    if side.who == "engine":
        found = engine(task, folder)
    else:
        found = pytorch(task, folder, side.who == "compile")
    (folder / "found.json").write_text(json.dumps(found))


# ── Turns ────────────────────────────────────────────────────────────────────────────────────


def measure(text: Path, rounds: int, folder: Path) -> dict[str, Any]:
    """{side: first steps' and whole runs' seconds by round, the first round's curves}."""

    def run(name: str) -> None:
        command = [sys.executable, "-m", "tests.bench.shakespeare", str(text)]
        command += ["--child", name, str(folder)]
        subprocess.run(command, check=True, env=environment(folder))

    run("prepare")
    sides: dict[str, Any] = {}
    for number in range(rounds):
        for name in NAMES[number % len(NAMES) :] + NAMES[: number % len(NAMES)]:
            run(name)
            found = json.loads((folder / "found.json").read_text())
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
            side = sides.setdefault(name, {"first_step_seconds": [], "seconds": []})
            side["first_step_seconds"].append(round(found["first"], 2))
            side["seconds"].append(round(found["seconds"], 2))
            side.setdefault("curve", found["curve"])
            side.setdefault("training_losses", found["losses"])
            print(
                f"round {number + 1}, {name}: {found['seconds']:.1f} s, "
                f"validation loss {found['curve'][-1][2]:.4f}",
                flush=True,
            )
    return {name: sides[name] for name in NAMES}


def table(sides: dict[str, Any]) -> str:
    rounds = len(sides["engine"]["seconds"])
    lines = [
        f"2,000 steps on Shakespeare's characters, {rounds} rounds; seconds without the first step",
        "",
        "| side | validation loss | least | median | first step, which compiles |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, side in sides.items():
        lines.append(
            f"| {name} | {side['curve'][-1][2]:.4f} | {min(side['seconds']):.1f} s | "
            f"{statistics.median(side['seconds']):.1f} s | {side['first_step_seconds'][0]:.1f} s |"
        )
    return "\n".join(lines) + "\n"


def missed(sides: dict[str, Any]) -> list[str]:
    """Which goals are not reached, in sentences."""
    found = [
        f"{name} ends at {side['curve'][-1][2]:.4f} nats, and the goal is {GOAL}"
        for name, side in sides.items()
        if side["curve"][-1][2] > GOAL
    ]
    seconds = {name: statistics.median(side["seconds"]) for name, side in sides.items()}
    return found + [
        f"the engine takes {seconds['engine']:.1f} s and {name} {seconds[name]:.1f} s"
        for name in sides
        if name != "engine" and seconds[name] <= seconds["engine"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("REGATTA_TEST_SHAKESPEARE")
    parser.add_argument("text", type=Path, nargs="?", default=default and Path(default))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.text is None:
        sys.exit("no text: name the file, or set REGATTA_TEST_SHAKESPEARE to its path")
    if options.child:
        child(options.child[0], options.text, Path(options.child[1]))
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as folder:
        sides = measure(options.text, options.rounds, Path(folder))
    about = {
        "machine": machine("jax", "jaxlib", "torch"),
        "threads": CORES,
        "seed": SEED,
        "train": CONFIG.model_dump(),
    }
    options.into.mkdir(parents=True, exist_ok=True)
    results = json.dumps(about | {"sides": sides}, indent=1)
    (options.into / "shakespeare.json").write_text(results + "\n")
    (options.into / "shakespeare.md").write_text(table(sides))
    chart = charts.validation(sides, GOAL)
    (options.into / "shakespeare.svg").write_text(charts.svg(chart))
    (options.into / "shakespeare.png").write_bytes(charts.png(chart))
    print(table(sides))
    if found := missed(sides):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
