"""A mixture of experts on a CPU, forward and backward, beside PyTorch: `python -m
tests.bench.experts`. As in `cpu.py`, each side is a process of its own and they take turns; all
start from the same numbers, and their losses and gradients have to agree. Writes
`results/experts.json` and `experts.md`.

PyTorch has two sides, because neither is faster at every size: `loop` sorts the tokens and
multiplies each expert's own (as transformers does), `padded` brings all experts to the length of
the largest and multiplies them in one `bmm`. `dense` is an MLP of the width that a token goes
through: the time that a mixture without overhead would take."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.training.heap import keep_heap
from tests.bench import cpu

T, D, E, K, F = 2048, 128, 64, 4, 64
SIDES = ("engine", "engine, dense", "torch, loop", "torch, padded")
CALLS = 20  # in a turn
GOAL = 1.3  # how much faster the engine is to be than the faster of PyTorch's
SAME = 1e-3


def drawn() -> dict[str, np.ndarray]:
    """What both sides begin with."""
    draw = np.random.default_rng(0)
    shapes = {"x": (T, D), "router": (D, E), "gate": (E, D, F), "up": (E, D, F), "down": (E, F, D)}
    return {name: draw.normal(0, 0.1, of).astype(np.float32) for name, of in shapes.items()}


# ── The sides ────────────────────────────────────────────────────────────────────────────────

Call = Callable[[], tuple[float, float]]  # the loss, and the sum of the absolute gradients


def engine(dense: bool) -> Call:
    import jax
    import jax.numpy as jnp

    from engine.model import experts

    def mixed(a: dict[str, Any]) -> jax.Array:
        weights, chosen, _ = experts.route(a["x"] @ a["router"], jnp.zeros(E), K, 1.0)
        matrices = a["gate"], a["up"], a["down"]
        how = experts.How(E, None, ragged=False)
        y_TD, _ = experts.mixture(how, a["x"], weights, chosen, *matrices)
        return jnp.mean(y_TD**2)

    def whole(a: dict[str, Any]) -> jax.Array:
        h_TF = jax.nn.silu(a["x"] @ a["gate"]) * (a["x"] @ a["up"])
        return jnp.mean((h_TF @ a["down"]) ** 2)

    arrays = drawn()
    if dense:
        flat = {name: np.concatenate(arrays[name][:K], axis=1) for name in ("gate", "up")}
        arrays |= flat | {"down": np.concatenate(arrays["down"][:K], axis=0)}
    run = jax.jit(jax.value_and_grad(whole if dense else mixed))
    placed = jax.device_put(arrays)

    def call() -> tuple[float, float]:
        loss, grads = jax.block_until_ready(run(placed))
        return float(loss), float(sum(np.abs(x).sum() for x in jax.tree.leaves(grads)))

    return call


def torch_side(padded: bool) -> Call:
    import torch
    from torch.nn.functional import silu

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    a = {name: torch.from_numpy(x).requires_grad_() for name, x in drawn().items()}

    def forward() -> Any:
        logits_TE = a["x"] @ a["router"]
        chosen_TK = logits_TE.topk(K).indices
        weights_TK = torch.sigmoid(logits_TE.gather(1, chosen_TK))
        weights_TK = weights_TK / weights_TK.sum(1, keepdim=True)
        order_n = chosen_TK.flatten().argsort(stable=True)
        counts = torch.bincount(chosen_TK.flatten(), minlength=E)
        x_nD = a["x"][order_n // K]
        if padded:
            expert_n = chosen_TK.flatten()[order_n]
            place_n = torch.arange(T * K) - (counts.cumsum(0) - counts)[expert_n]
            x_ECD = x_nD.new_zeros(E, int(counts.max()), D)
            x_ECD = x_ECD.index_put((expert_n, place_n), x_nD)
            h_ECF = silu(x_ECD.bmm(a["gate"])) * x_ECD.bmm(a["up"])
            y_nD = h_ECF.bmm(a["down"])[expert_n, place_n]
        else:
            parts = []
            for e, x_cD in enumerate(x_nD.split(counts.tolist())):
                h_cF = silu(x_cD @ a["gate"][e]) * (x_cD @ a["up"][e])
                parts.append(h_cF @ a["down"][e])
            y_nD = torch.cat(parts)
        y_nD = y_nD * weights_TK.flatten()[order_n, None]
        return torch.zeros(T, D).index_add(0, order_n // K, y_nD)

    def call() -> tuple[float, float]:
        loss = (forward() ** 2).mean()
        grads = torch.autograd.grad(loss, list(a.values()))
        return float(loss), float(sum(x.abs().sum() for x in grads))

    return call


def side(name: str) -> None:
    """A process: says when it is ready, then answers each number of calls with their seconds."""
    assert keep_heap()
    call = engine("dense" in name) if name.startswith("engine") else torch_side("padded" in name)
    for _ in range(3):
        found = call()
    print(json.dumps({"losses": found}), flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(int(line)):
            call()
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "losses": []}), flush=True)


class Runner(cpu.Runner):
    """A side's process."""

    def __init__(self, name: str, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.bench.experts", "--side", name]
        self._process = subprocess.Popen(
            command,
            env=cpu.environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.losses = self._answer()["losses"]


# ── The comparison ───────────────────────────────────────────────────────────────────────────


def measure(rounds: int) -> dict[str, list[float]]:
    """The milliseconds of a call in each round."""
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        runners = {name: Runner(name, Path(folder)) for name in SIDES}
        try:
            ours = runners["engine"].losses
            for name in SIDES[2:]:
                pairs = zip(ours, runners[name].losses, strict=True)
                if not all(math.isclose(a, b, rel_tol=SAME) for a, b in pairs):
                    raise SystemExit(f"{name} computes something else: {runners[name].losses}")
            for number in range(rounds):
                shift = number % len(SIDES)
                for name in SIDES[shift:] + SIDES[:shift]:
                    seconds, _ = cpu.quiet_turn(runners[name], CALLS)
                    found[name].append(round(1000 * seconds / CALLS, 2))
        finally:
            for runner in runners.values():
                runner.end()
    return found


def table(found: dict[str, list[float]]) -> str:
    """The figures in Markdown."""
    ours = statistics.median(found["engine"])
    lines = [
        f"T {T}, D {D}, {K} of {E} experts of width {F}; forward and backward, {cpu.CORES} cores",
        "",
        "| side | least, ms | median, ms | engine is faster by |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, times in found.items():
        middle = statistics.median(times)
        lines.append(f"| {name} | {min(times):.1f} | {middle:.1f} | {middle / ours:.2f}× |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--side", choices=SIDES, help="be this side")
    parser.add_argument("--into", type=Path, default=cpu.RESULTS)
    options = parser.parse_args()
    if options.side:
        side(options.side)
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: cpu.CORES])
    found = measure(options.rounds)
    results = {"machine": cpu.machine("jax", "jaxlib", "torch"), "milliseconds": found}
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "experts.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "experts.md").write_text(table(found))
    print(table(found))
    best = min(statistics.median(found[name]) for name in SIDES[2:])
    if (ratio := best / statistics.median(found["engine"])) < GOAL:
        sys.exit(f"{ratio:.2f}× of the faster PyTorch, and the goal is {GOAL}×")


if __name__ == "__main__":
    main()
