"""Tokens per second of fine-tuning on conversations beside plain PyTorch: `python -m
tests.bench.tuning`. The lab's step `conversations` makes the tokens and labels. All sides start
from the same parameters, read the same conversations in the same steps and minimise the loss on
what the assistant says. The engine packs conversations into rows. PyTorch, eager, does so with a
mask; in another process it has a conversation in each row, filled up to the longest of its batch.
Only tokens of conversations count. The sides take turns; it does not wait for a quiet machine, and
reports the load. Losses of each step are compared. Writes `results/tuning.json` and `tuning.md`."""

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.cpu import CORES, REST, RESULTS, SAME, machine
from tests.bench.sides import WARM_UP, read_params, write_params
from tests.bench.workloads import SEED, WORKLOADS

SIDES = ("engine", "PyTorch, packed", "PyTorch, a row each")
STEPS = {"1M": 16, "10M": 5}  # in a round
STORES, CHATS, PARAMS = "tokens", "chats", "params.npz"


def conversations() -> list[dict[str, Any]]:
    """A question for each function of Python's standard library that has a docstring, and the
    docstring as the answer."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
                asked = f"What does {path.stem}.{node.name} do?"
                found.append({"messages": [{"role": "user", "content": asked},
                                           {"role": "assistant", "content": text}]})  # fmt: skip
    return found


def prepare(name: str, folder: Path) -> None:
    """Make what all sides share, by the lab's own steps."""
    import jax

    from engine.model.decoder import Decoder
    from runner.worker.texts import conversations as step
    from tests.bench.workloads import build_store

    workload = WORKLOADS[name]
    build_store(workload, folder / STORES / "train")
    (folder / "rows").mkdir()
    lines = [json.dumps(row) + "\n" for row in conversations()]
    for split, of in (("train", lines[:-99]), ("validation", lines[-99:])):
        (folder / f"rows/{split}.jsonl").write_text("".join(of))
    (folder / CHATS).mkdir()
    asked = {"source": None, "template": "chatml", "labels": [], "longer": "drop"}
    inputs = {"tokenizer": folder / STORES, "conversations": folder / "rows"}
    step.make(asked | {"max_tokens": workload.model.seq_len}, inputs, folder / CHATS)
    params = jax.jit(Decoder(workload.model).init)(jax.random.key(SEED))
    write_params(params, folder / PARAMS)


def batches(name: str, folder: Path) -> Any:
    """The batches that a `train` step would read."""
    from runner.worker.texts.mixtures import sampler

    workload = WORKLOADS[name]
    inputs = {"tokens": folder / CHATS}
    return sampler(workload.train, SEED, workload.model.seq_len, inputs)


# ── One side, in a process of its own ────────────────────────────────────────────────────────


def side(who: str, name: str, folder: Path) -> None:
    """Train as many steps as each line of the input asks for, and one before that does not count.
    Answers with seconds and losses."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    losses = by_the_engine(name, folder) if who == SIDES[0] else by_torch(who, name, folder)
    print(json.dumps([0, [next(losses) for _ in range(1 + WARM_UP)]]), flush=True)
    for line in sys.stdin:
        found = [next(losses)]
        began = time.perf_counter()
        found += [next(losses) for _ in range(int(line))]
        print(json.dumps([time.perf_counter() - began, found]), flush=True)
    losses.close()


def by_the_engine(name: str, folder: Path) -> Iterator[float]:
    from engine.model.decoder import Decoder
    from engine.training.heap import keep_heap
    from engine.training.train import train

    keep_heap()
    model, config, compute = WORKLOADS[name]
    checkpoints = folder / "checkpoints"
    rows = batches(name, folder)
    return (x.loss for x in train(Decoder(model, compute), config, rows, SEED, checkpoints))


def by_torch(who: str, name: str, folder: Path) -> Iterator[float]:
    import torch

    from engine.data.sampling import ahead
    from tests.bench import torch_model

    torch.set_num_threads(CORES)
    model, config, _ = WORKLOADS[name]
    source = batches(name, folder)
    shaped = masked if who == SIDES[1] else in_rows

    def read(step: int) -> torch_model.Batch:
        parts = shaped(*source.rows(step, np.arange(config.train_batch_size)))
        return tuple(torch.from_numpy(x).long() if x.dtype != bool else torch.from_numpy(x)
                     for x in parts)  # fmt: skip

    decoder = torch_model.Decoder(model)
    torch_model.load(decoder, read_params(folder / PARAMS))
    steps = ahead(read, range(1, config.num_train_steps + 1))
    return torch_model.train(decoder, decoder, config, steps)


def masked(
    inputs_BS: np.ndarray, targets_BS: np.ndarray, segments_BS: np.ndarray
) -> tuple[np.ndarray, ...]:
    """A packed batch, and which positions (B, 1, S, S) see which: the earlier ones of their own
    conversation."""
    same_BSS = segments_BS[:, :, None] == segments_BS[:, None, :]
    return inputs_BS, targets_BS, np.tril(same_BSS)[:, None]


def in_rows(
    inputs_BS: np.ndarray, targets_BS: np.ndarray, segments_BS: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The same conversations, each in a row as long as the longest of them."""
    parts = [
        (inputs_S[places], targets_S[places])
        for inputs_S, targets_S, segments_S in zip(inputs_BS, targets_BS, segments_BS, strict=True)
        for number in range(1, int(segments_S.max()) + 1)
        for places in [segments_S == number]
    ]
    shape = len(parts), max(len(one) for one, _ in parts)
    inputs, targets = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
    for row, (one, other) in enumerate(parts):
        inputs[row, : len(one)], targets[row, : len(one)] = one, other
    return inputs, targets


# ── All sides, in turns ──────────────────────────────────────────────────────────────────────


def measure(name: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Tokens per second of each side in each round, and all losses."""
    subprocess.run(_command("prepare", name, str(folder)), check=True, env=_environment())
    source, count = batches(name, folder), STEPS[name]
    every = np.arange(WORKLOADS[name].train.train_batch_size)
    speeds: dict[str, list[float]] = {one: [] for one in SIDES}
    losses: dict[str, list[float]] = {}
    step, filled = 1 + WARM_UP, []
    with ExitStack() as stack:
        children = {one: stack.enter_context(_child(one, name, folder)) for one in SIDES}
        for one, child in children.items():
            losses[one] = json.loads(_line(child))[1]
        for number in range(rounds):
            step += 1  # it is not counted
            rows = [source.rows(step + n, every) for n in range(1, count + 1)]
            tokens, step = sum(int((x.segments_BS > 0).sum()) for x in rows), step + count
            filled.append(tokens / sum(x.segments_BS.size for x in rows))
            for one in (*SIDES[number % 3 :], *SIDES[: number % 3]):
                time.sleep(REST)  # in which idle threads of the last turn go to sleep
                child = children[one]
                assert child.stdin
                child.stdin.write(f"{count}\n")
                child.stdin.flush()
                seconds, found = json.loads(_line(child))
                speeds[one].append(round(tokens / seconds, 1))
                losses[one] += found
            print(f"{name} round {number + 1}: {speeds}", flush=True)
        for child in children.values():
            assert child.stdin
            child.stdin.close()
    return {"steps_in_a_round": count, "filled": filled, "per_second": speeds, "losses": losses}


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.bench.tuning", *words]


def _environment() -> dict[str, str]:
    return os.environ | {"NPROC": str(CORES), "OMP_NUM_THREADS": str(CORES), "JAX_PLATFORMS": "cpu"}


def _child(who: str, name: str, folder: Path) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    command = _command("side", who, name, str(folder))
    return subprocess.Popen(command, env=_environment(), stdin=pipe, stdout=pipe, text=True)


def _line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout
    return child.stdout.readline().strip() or sys.exit("a side ended")


def ratio(found: dict[str, Any]) -> float:
    """How many times as fast the engine is as the faster other side."""
    ours, *theirs = (statistics.median(found["per_second"][one]) for one in SIDES)
    return float(ours / max(theirs))


def apart(found: dict[str, Any]) -> float:
    """The largest difference between a loss of another side and the engine's, as a share of it."""
    ours, *theirs = (np.array(found["losses"][one]) for one in SIDES)
    return float(max(np.abs(x - ours).max() / ours.min() for x in theirs))


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        f"tokens of conversations per second, median (least); load average "
        f"{results['load'][0]:.1f} before and {results['load'][1]:.1f} after, on "
        f"{results['machine']['cores']} cores",
        "",
        f"| model | {' | '.join(SIDES)} | engine / faster other | losses differ by at most |",
        f"| --- |{' ---: |' * (len(SIDES) + 2)}",
    ]
    for name, found in results["tuning"].items():
        of = found["per_second"]
        cells = [f"{statistics.median(of[s]):,.0f} ({min(of[s]):,.0f})" for s in SIDES]
        row = (name, *cells, f"{ratio(found):.2f}×", f"{apart(found):.2%}")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    before, found = os.getloadavg()[0], {}
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(name, options.rounds, Path(folder))
    results = {
        "machine": machine("jax", "torch"),
        "load": [before, os.getloadavg()[0]],
        "tuning": found,
    }
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "tuning.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "tuning.md").write_text(table(results))
    print(table(results))
    if any(apart(one) > SAME for one in found.values()):
        sys.exit("the sides do not train the same model, so their speeds are not compared")


if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        side(*sys.argv[2:4], Path(sys.argv[4]))
    elif sys.argv[1:2] == ["prepare"]:
        prepare(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
