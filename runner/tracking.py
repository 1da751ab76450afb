"""The job's runs for W&B: written offline below `out/wandb/`, where the attempt's spec asks for it.

The worker holds a child that reads the worker's own metrics and logs them. It is a child so that
W&B's threads, hooks and trouble stay out of training, and it is not told of any key or network.
A run that an earlier attempt began is written whole, under the same id, so that the newest file of
a run is all of it. The lab uploads it when it has a key (`runner.upload`).
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from runner import guard
from runner.progress import curve
from runner.record import run_name
from runner.reports import AttemptSpec, RunReport, StepMetrics, read_report
from runner.store import Store

PROJECT = "regatta"
LOOK_EVERY = 0.5  # seconds between two looks for new metrics
FINISH_MAY_TAKE = 60.0  # seconds for the child to write what is left


def run_id(execution: str, run: str) -> str:
    """A run's id at W&B."""
    return f"{execution}.{run}"


# ── The worker's side ────────────────────────────────────────────────────────────────────────


@contextmanager
def following(folder: Path) -> Iterator[None]:
    """Have a child write the runs of the attempt in `folder` for W&B, during the `with` body.

    Nothing waits for it but the end, and that a minute at most. What goes wrong is said in the
    log, and that is all.
    """
    child = None
    with tempfile.TemporaryDirectory(prefix="regatta-", ignore_cleanup_errors=True) as scratch:
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "runner.tracking", str(folder)],
                stdin=subprocess.PIPE,
                env=_environment(folder / "out", scratch),
            )
        except OSError as error:
            print(f"W&B: its child did not start: {error}", file=sys.stderr)
        try:
            yield
        finally:
            if child:
                _end(child)


def _end(child: "subprocess.Popen[bytes]") -> None:
    try:
        child.communicate(timeout=FINISH_MAY_TAKE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.returncode:
        print(f"W&B: its child ended with {child.returncode}; runs may be cut", file=sys.stderr)


def _environment(out: Path, scratch: str) -> dict[str, str]:
    """W&B writes below `out/wandb/` and nowhere else, but for what is gone at the end: sockets,
    whose paths must be short."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return kept | {
        "HOME": scratch,
        "TMPDIR": scratch,
        "WANDB_DIR": str(out),
        "WANDB_CACHE_DIR": str(out / "wandb" / "cache"),
        "WANDB_CONFIG_DIR": str(out / "wandb" / "config"),
        "WANDB_DATA_DIR": str(out / "wandb" / "data"),
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
    }


# ── The child ────────────────────────────────────────────────────────────────────────────────


def main(folder: Path) -> None:
    """Write the runs of the attempt in `folder`, until nobody holds our standard input."""
    guard.die_with_parent(signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the worker ends us when it has saved
    store = Store(folder.parents[1])
    spec = AttemptSpec.model_validate_json((folder / "spec.json").read_bytes())
    for arm, seed in spec.plan.runs():
        _follow(store, spec, arm, seed, folder / "out")


def _follow(store: Store, spec: AttemptSpec, arm: str, seed: int, out: Path) -> None:
    """Write one run while it trains; nothing if it never does."""
    run, planned = run_name(arm, seed), spec.plan.arms[arm]
    report = out / "runs" / f"{run}.json"
    new = _lines(out / "metrics" / run, lambda: report.exists() or _closed())
    first = next(new, None)
    earlier = curve(store, spec.earlier, run, planned).lines
    lines = [line for line in earlier if first is None or line.step < first.step]
    if first is not None:
        lines.append(first)
    if not lines:
        return

    import wandb

    logged = wandb.init(
        id=run_id(spec.attempt.rpartition(".")[0], run),
        project=PROJECT,
        group=spec.attempt.rpartition(".")[0],
        name=run,
        config={
            "experiment": spec.plan.experiment,
            "arm": arm,
            "seed": seed,
            "model": planned.model.model_dump(mode="json"),
            "train": planned.train.model_dump(mode="json"),
            "data": spec.plan.data.model_dump(mode="json"),
        },
        settings=wandb.Settings(
            mode="offline",
            host=PROJECT,  # and not this machine's name
            console="off",
            silent=True,
            symlink=False,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
    )
    for line in chain(lines, new):
        logged.log(line.model_dump(exclude={"step"}, exclude_none=True), step=line.step)
    said = read_report(report, RunReport, spec.nonce)
    logged.finish(exit_code=0 if said and said.state == "finished" else 1)


def _lines(metrics: Path, is_over: Callable[[], bool]) -> Iterator[StepMetrics]:
    """The lines of a run's chunks, as they come, until it is over and all are read."""
    read = 0
    while True:
        over = is_over()  # first, so that what was written before it is seen
        for chunk in sorted(metrics.glob("*.jsonl"))[read:]:
            for line in chunk.read_bytes().splitlines():
                yield StepMetrics.model_validate_json(line)
            read += 1
        if over:
            return
        _closed(LOOK_EVERY)


def _closed(timeout: float = 0.0) -> bool:
    """Whether our standard input has ended, or does so within so many seconds."""
    return bool(select.select([0], [], [], timeout)[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
