"""A first entry for a track: the starter's text with the track's data, devices and seeds, and a
model that fits its budget. Pure, except that it reads the starter."""

import math
import re
from collections.abc import Mapping

from engine.config import flops
from engine.config.schema import ModelConfig
from runner.schema.devices import Kind
from runner.schema.tracks import SIZES, Hardware, Track
from runner.spec.declaration import FILE_NAME, STARTERS

STARTER = "speedrun"
WIDTHS = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# FLOPs for each squared parameter: 6 for a parameter and a token, at 10 tokens for a parameter.
PER_SQUARE = 60.0
UTILISATION = {"cpu": 0.15, "gpu": 0.3, "tpu": 0.3}  # of the peak, by platform
STARTS = 20.0  # seconds of training that a process needs to begin
UNKNOWN = 1e13  # FLOPs for a track that states no budget: experiments/small-run takes as many
ROOM = 0.98  # of a budget that is used
SCALING = (1 / 1000, 1 / 300, 1 / 100, 1 / 30)  # of the compute that a track projects to
WINDOWS = 64  # in a step for each device, at most: more may not fit
LARGE = 1e16  # FLOPs of a run that no CPU trains
STEPS = 400  # that a run should have, at least roughly


def text(track: Track, kinds: Mapping[str, Kind]) -> str:
    """The experiment.yaml of a first entry for the track, in a lab with these kinds of device."""
    starter = (STARTERS / STARTER / FILE_NAME).read_text(encoding="utf-8")
    on = track.hardware or _devices(track, kinds)
    sizes = SCALING if track.kind == "scaling" else (1.0,)
    whole, windows = _budget(track, kinds[on.kind], on.count), WINDOWS * on.count
    shapes = [shape(size * whole, windows) for size in sizes]
    model, train = shapes[0]
    values = {
        "track": track.name,
        "data": f"{{{track.data.declared}}}",
        "tokens": f"{{tokens: {track.data.eval_tokens}}}",
        "resources": f"{{kind: {on.kind}, count: {on.count}}}",
        "seeds": str(list(range(track.seeds or 2))),
        **{key: str(value) for key, value in (model | train).items()},
    }
    values["eval"] = values.pop("tokens")
    for key, value in values.items():
        line = re.compile(rf"^( *{key}: )(\{{[^}}]*\}}|\[[^\]]*\]|[^ #\n]+)", re.MULTILINE)
        starter, found = line.subn(rf"\g<1>{value}", starter, 1)
        assert found, f"the starter has no {key}"
    if track.kind != "scaling":
        return starter
    arms = "".join(
        f"  size-{n}: {{model: {_flow(of)}, train: {_flow(how)}}}\n"
        for n, (of, how) in enumerate(shapes, 1)
    )
    return f"{starter}arms:                                   # {SIZES} sizes of one recipe\n{arms}"


def _flow(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"


def _devices(track: Track, kinds: Mapping[str, Kind]) -> Hardware:
    """Devices for a track that names none."""
    large = max(track.budget or 0.0, (track.at or 0.0) * SCALING[-1]) > LARGE
    gpus = [name for name, kind in kinds.items() if kind.platform == "gpu" and kind.on_ray]
    return Hardware(kind=gpus[0], count=8) if large and gpus else Hardware(kind="cpu")


def _budget(track: Track, kind: Kind, count: int) -> float:
    """FLOPs of a run of a first entry."""
    if track.kind == "scaling":
        return track.at or UNKNOWN
    if track.kind == "budget" and track.seconds is None:
        share = 1.0 if track.cost == "model" else UTILISATION[kind.platform]
        return ROOM * share * (track.budget or UNKNOWN)
    if track.seconds:
        seconds = max(track.seconds / 4, track.seconds - STARTS) / 4  # a machine may be busy
        return seconds * kind.peak_flops * count * UTILISATION[kind.platform]
    return UNKNOWN


def shape(budget: float, most_windows: int) -> tuple[dict[str, int], dict[str, float]]:
    """A decoder and how long it is trained, for so many FLOPs, with at most so many windows in a
    step: (keys of `model`, keys of `train`)."""
    most, found = math.sqrt(budget / PER_SQUARE), _of_width(WIDTHS[0])
    for width in WIDTHS:
        if flops.parameters(ModelConfig.model_validate(_of_width(width))) <= most:
            found = _of_width(width)
    model = ModelConfig.model_validate(found)
    tokens = budget / 3 / flops.forward_flops_per_token(model)
    windows = tokens / model.seq_len
    batch = min(most_windows, max(8, 2 ** round(math.log2(max(1.0, windows / STEPS)))))
    rate = 0.004 if model.hidden_dim < 256 else 0.002 if model.hidden_dim < 768 else 0.0006
    steps = max(10, int(windows / batch))
    return found, {
        "train_batch_size": batch,
        "num_train_steps": steps,
        "learning_rate": rate,
    }


def _of_width(width: int) -> dict[str, int]:
    head = 16 if width < 256 else 64
    return {
        "hidden_dim": width,
        "intermediate_dim": 16 * round(width * 8 / 3 / 16),
        "num_layers": max(2, 1 + width // 64),
        "num_heads": width // head,
        "seq_len": 128 if width < 128 else 256 if width < 384 else 1024,
    }
