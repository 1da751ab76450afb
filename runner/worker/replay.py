"""Trains a stretch of a finished run once more, from one of its checkpoints to the next, and says
whether it came to the same. `python -m runner.worker.replay` reads a `Stretch` and prints an
`Outcome`: a process of its own, as cores and flags are fixed before JAX is imported.

Where the run's step has code of the experiment's own, or reads what such code made, it is trained
under bubblewrap, as it was the first time (`runner.isolation.bubblewrap`). It sees the checkpoint
that it begins with and not the one it should come to. What compares is the lab's code alone, in
children that see one checkpoint each: who trains again has no word in how that came out, but for
its losses.

The engine's training is the same bit for bit where the receipts are; elsewhere the losses may
differ by the tolerance that `runner.analysis.run_comparison` states."""

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from runner.isolation import bubblewrap
from runner.lib import bounds, untrusted_files
from runner.lib.base_record import Record, Sha256
from runner.lib.bounds import Word
from runner.lib.canonical_json import to_json
from runner.schema import job_reports
from runner.schema.devices import KINDS
from runner.schema.record import Resources
from runner.store.backends import remove_tree
from runner.worker import environment

ISOLATED = "isolated"  # the word by which this module is begun inside of a box
LOSSES, NOW, BEGUN, WHY = "losses.json", "now", "begun", "why.txt"  # in its box
MOST_WHY = 2_000  # characters
MOST_DIGEST = 1 << 16  # bytes


class CannotTrain(Exception):
    """The stretch could not be trained or compared; the message says why."""


class Stretch(Record):
    """Steps `first` + 1 to `last` of a run. `first` is 0 for its beginning."""

    config: dict[str, Any]  # of its `train` step
    inputs: dict[str, str]  # folders
    code: str = ""  # of the experiment's own modules
    own: tuple[str, ...] = ()
    isolated: bool = False
    limits: bubblewrap.Limits = bubblewrap.USUAL
    resources: Resources
    checkpoints: str  # the folder with `<first>` and `<last>`
    first: int
    last: int


class Outcome(Record):
    """What the stretch came to."""

    same: bool  # the parameters, bit for bit
    before_sha256: str
    now_sha256: str
    losses: dict[int, float]  # by step
    receipt: dict[str, str]


class Losses(job_reports.Report):
    """What the one who trained says of its losses."""

    losses: dict[Word, Annotated[float, Field(ge=-1e9, le=1e9)]]  # by step


class Digest(job_reports.Report):
    """Of a checkpoint's parameters, and what was there to train with."""

    sha256: Sha256
    receipt: job_reports.Receipt


def replay(stretch: Stretch) -> Outcome:
    """Train the stretch and compare. Raises CannotTrain, bubblewrap.CannotIsolate and, where
    nothing is isolated, what training does."""
    before = Path(stretch.checkpoints).resolve()
    with _place() as place:
        if stretch.isolated:
            # Here, since a box has all names to give away again.
            environment.take(stretch.resources.kind, stretch.resources.count)
            _in_box(
                stretch,
                ("train", str(place)),
                reads=(
                    *map(Path, stretch.inputs.values()),
                    *([_folder(before / str(stretch.first))] if stretch.first else []),
                ),
                writes=place,
            )
        else:
            environment.settle(stretch.resources.kind, stretch.resources.count)
            train(stretch, place)
        ends = [_folder(folder / str(stretch.last)) for folder in (before, place / NOW)]
        then, now = (_digest(stretch, folder) for folder in ends)
        losses = _losses(stretch, place)
    return Outcome(
        same=then.sha256 == now.sha256,
        before_sha256=then.sha256,
        now_sha256=now.sha256,
        losses=losses,
        receipt=now.receipt,
    )


# ── What is done in a box, or here ─────────────────────────────────────────────────────────────


def train(stretch: Stretch, place: Path) -> None:
    """Train the stretch, and leave its last checkpoint and its losses in the folder `place`. Raises
    what training does."""
    if stretch.code:
        sys.path.insert(0, stretch.code)
        sys.dont_write_bytecode = True

    from engine.config.schema import TrainConfig
    from engine.training.train import train as steps_of
    from runner.worker.builtin import plugins
    from runner.worker.builtin.mixtures import sampler

    config = stretch.config
    inputs = {key: Path(folder) for key, folder in stretch.inputs.items()}
    functions = {name: _imported(name) for name in stretch.own}
    parts = plugins.parts(config, inputs, functions)
    recipe = TrainConfig.model_validate(config["train"])
    batches = parts.batches or sampler(recipe, config["seed"], parts.model.config.seq_len, inputs)
    begun, losses = place / BEGUN, dict[int, float]()
    begun.mkdir()
    if stretch.first:
        before = Path(stretch.checkpoints).resolve()
        (begun / str(stretch.first)).symlink_to(before / str(stretch.first))
    asked = iter(range(stretch.first + 1, stretch.last + 1))  # once after each step
    for metrics in steps_of(
        parts.model,
        recipe,
        batches,
        config["seed"],
        place / NOW,
        [begun],
        loss=parts.loss,
        optimizer=parts.optimizer,
        rates=parts.rates,
        stop=lambda: next(asked) == stretch.last,
    ):
        losses[metrics.step] = metrics.loss
    (place / LOSSES).write_bytes(to_json({"losses": {str(n): x for n, x in losses.items()}}))


def digest(checkpoint: Path) -> Digest:
    """Of a checkpoint's parameters, whatever model they are of. Raises engine's BadCheckpoint."""
    from engine.training.checkpoint import params_sha256

    return Digest(sha256=params_sha256(checkpoint), receipt=environment.receipt())


def _imported(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


# ── Around them ────────────────────────────────────────────────────────────────────────────────


def _digest(stretch: Stretch, checkpoint: Path) -> Digest:
    if not stretch.isolated:
        return digest(checkpoint)
    with _place() as place:
        said = _in_box(stretch, ("digest", str(checkpoint)), reads=(checkpoint,), writes=place)
    try:
        return bounds.parse(Digest, said)
    except ValueError as error:
        raise CannotTrain(f"step {checkpoint.name} cannot be compared: {error}") from error


def _folder(path: Path) -> Path:
    """The same path, if a folder lies there behind no link: what it leads to would be shown in the
    box, and that may be another checkpoint, or what no box may show. Raises CannotTrain."""
    if path.resolve() != path or not path.is_dir():
        raise CannotTrain(f"step {path.name} has left no folder to compare, or one behind a link")
    return path


def _losses(stretch: Stretch, place: Path) -> dict[int, float]:
    try:
        found = job_reports.read_report(place / LOSSES, Losses)
    except job_reports.Refused as error:
        raise CannotTrain(str(error)) from error
    asked = [str(step) for step in range(stretch.first + 1, stretch.last + 1)]
    if found is None or sorted(found.losses) != sorted(asked):
        raise CannotTrain(f"it did not say its losses of steps {asked[0]} to {asked[-1]}")
    return {int(step): loss for step, loss in found.losses.items()}


def _in_box(
    stretch: Stretch, what: tuple[str, str], *, reads: tuple[Path, ...], writes: Path
) -> bytes:
    """What a child in a box printed that did `what` (and its argument). Raises CannotTrain and
    isolate.CannotIsolate."""
    box = bubblewrap.Box(
        own=Path(stretch.code) if stretch.code and what[0] == "train" else None,
        reads=reads,
        writes=((writes, writes),),
        folder=writes,
        accelerator=KINDS[stretch.resources.kind].platform != "cpu",
    )
    printed = bytearray()
    answers = what[0] == "digest"
    ended = bubblewrap.run(
        box,
        ["runner.worker.replay", ISOLATED, *what, str(writes)],
        replace(stretch.limits, printed=MOST_DIGEST) if answers else stretch.limits,
        given=stretch.model_copy(
            update={"code": str(bubblewrap.OWN) if stretch.code else ""}
        ).canonical(),
        keep=printed.extend if answers else partial(os.write, sys.stderr.fileno()),
        stderr=not answers,
    )
    if ended.code or ended.why:
        raise CannotTrain(
            ended.why
            or untrusted_files.words(writes / WHY, MOST_WHY)
            or f"its process ended with {ended.code}"
        )
    return bytes(printed)


@contextmanager
def _place() -> Iterator[Path]:
    """A folder for what is made on the way; who wrote to it may have left odd names."""
    place = Path(tempfile.mkdtemp(prefix="regatta-replay-")).resolve()
    try:
        yield place
    finally:
        with suppress(OSError):
            remove_tree(place)


def main(words: list[str]) -> int:
    """Replay what is asked for; returns the exit code."""
    try:
        stretch = Stretch.model_validate_json(sys.stdin.buffer.read())
    except ValidationError as error:
        print(error, file=sys.stderr)
        return 2
    if words[:1] == [ISOLATED]:
        return _inside(stretch, *words[1:])
    try:
        with redirect_stdout(sys.stderr):
            outcome = replay(stretch)
    except (CannotTrain, bubblewrap.CannotIsolate) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    os.write(1, outcome.canonical())
    return 0


def _inside(stretch: Stretch, what: str, argument: str, writes: str) -> int:
    try:
        environment.settle(stretch.resources.kind, stretch.resources.count, taken=True)
        with redirect_stdout(sys.stderr):
            if what == "train":
                train(stretch, Path(argument))
                return 0
            answer = digest(Path(argument))
        os.write(1, to_json(answer.model_dump(mode="json")))
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        Path(writes, WHY).write_text(" ".join(reason.split())[:MOST_WHY])
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
