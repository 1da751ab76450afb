"""One side of a comparison, in a process of its own: `python -m tests.bench.sides SIDE WORKLOAD
FOLDER`. It gets ready, says so, and then trains as many steps as each line of its input asks for
and answers with the seconds they took and their losses, one line of JSON each. What belongs to both
sides lies in FOLDER: `tokens`, the store, and `params.npz`, the parameters to start from."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.training.heap import keep_heap

WARM_UP = 3  # steps after the first, which compiles


class Side(NamedTuple):
    """Who trains. `heap`: glibc keeps its memory, as the lab's worker has it."""

    name: str
    who: str  # engine, eager or compile
    heap: bool
    free_mkl: bool = False  # see `cpu.free_mkl`


SIDES = {
    side.name: side
    for side in (
        Side("engine", "engine", heap=True),
        Side("eager", "eager", heap=False),
        Side("eager, heap kept", "eager", heap=True),
        Side("compile", "compile", heap=False),
        Side("compile, heap kept", "compile", heap=True),
        Side("eager, heap kept, MKL freed", "eager", heap=True, free_mkl=True),
        Side("compile, heap kept, MKL freed", "compile", heap=True, free_mkl=True),
    )
}


def main(name: str, workload: str, folder: Path) -> None:
    side = SIDES[name]
    if side.heap:  # before anything is allocated
        assert keep_heap(), "this is not glibc: leave out the sides that keep the heap"
    began = time.perf_counter()
    losses = (_engine if side.who == "engine" else _torch)(workload, folder, side)
    imported = time.perf_counter()
    found = [next(losses)]
    first = time.perf_counter()
    found += [next(losses) for _ in range(WARM_UP)]
    _say({"start_seconds": imported - began, "first_step_seconds": first - imported}, found)
    for line in sys.stdin:
        # The engine has its next step under way when it tells of one, so a step that is not
        # counted brings it to where it will be at the end.
        found = [next(losses)]
        began = time.perf_counter()
        found += [next(losses) for _ in range(int(line))]
        _say({"seconds": time.perf_counter() - began}, found)
    losses.close()


def _say(figures: dict[str, float], losses: list[float]) -> None:
    print(json.dumps({**figures, "losses": losses}), flush=True)


def _engine(workload: str, folder: Path, _: Side) -> Iterator[float]:
    """The engine's own loop: prefetch, metrics of each step, checkpoints as the run declares."""
    import jax

    from engine.model.decoder import Decoder
    from engine.training.train import train
    from tests.bench.workloads import SEED, WORKLOADS, sampler

    jax.config.update("jax_compilation_cache_dir", str(folder / "xla"))
    model, config, compute = WORKLOADS[workload]
    batches = sampler(WORKLOADS[workload], folder / "tokens")
    checkpoints = folder / "checkpoints" / str(os.getpid())
    return (x.loss for x in train(Decoder(model, compute), config, batches, SEED, checkpoints))


def _torch(workload: str, folder: Path, side: Side) -> Iterator[float]:
    """PyTorch in a loop that does as much: prefetch and each step's loss."""
    import torch

    from engine.data.sampling import ahead
    from tests.bench import torch_model
    from tests.bench.workloads import WORKLOADS, every_row, sampler

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    model, config, _ = WORKLOADS[workload]
    rows = every_row(WORKLOADS[workload])
    source = sampler(WORKLOADS[workload], folder / "tokens")

    def read(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs_BS, targets_BS, _ = source.rows(step, rows)
        return torch.from_numpy(inputs_BS).long(), torch.from_numpy(targets_BS).long()

    decoder = torch_model.Decoder(model)
    torch_model.load(decoder, read_params(folder / "params.npz"))
    loss = torch.compile(decoder, fullgraph=True) if side.who == "compile" else decoder
    batches = ahead(read, range(1, config.num_train_steps + 1))
    return torch_model.train(decoder, loss, config, batches)


def prepare(workload: str, folder: Path) -> None:
    """Make what both sides share."""
    import jax

    from engine.model.decoder import Decoder
    from tests.bench.workloads import SEED, WORKLOADS, build_store

    build_store(WORKLOADS[workload], folder / "tokens")
    params = jax.jit(Decoder(WORKLOADS[workload].model).init)(jax.random.key(SEED))
    write_params(params, folder / "params.npz")


def write_params(params: Any, path: Path) -> None:
    """Write a tree of arrays, each under its path."""
    import jax
    import numpy as np

    leaves = jax.tree_util.tree_leaves_with_path(params)
    names = (jax.tree_util.keystr(keys, simple=True, separator="/") for keys, _ in leaves)
    np.savez(path, **{name: np.asarray(x) for name, (_, x) in zip(names, leaves, strict=True)})


def read_params(path: Path) -> dict[str, Any]:
    """The tree that `write_params` wrote."""
    import numpy as np

    tree: dict[str, Any] = {}
    with np.load(path) as arrays:
        for name, x in arrays.items():
            *folders, leaf = name.split("/")
            node = tree
            for folder in folders:
                node = node.setdefault(folder, {})
            node[leaf] = x
    return tree


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2], Path(sys.argv[3]))
    else:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
