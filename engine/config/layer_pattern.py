"""What each layer of a model sees: kinds of layers, repeated over the depth."""

from collections import Counter
from typing import Literal

from pydantic import ValidationInfo

from engine.config.fields import refusal

LayerKind = Literal["full", "window", "nope", "linear"]


def repeated(
    pattern: tuple[LayerKind, ...], last: LayerKind | None, layers: int
) -> tuple[LayerKind, ...]:
    """The pattern over so many layers, but for the last one if that is named."""
    kinds = (pattern * -(-layers // len(pattern)))[:layers]
    return kinds if last is None else (*kinds[:-1], last)


def counted(
    pattern: tuple[LayerKind, ...], last: LayerKind | None, layers: int
) -> Counter[LayerKind]:
    """The layers of each kind in `repeated`."""
    periods, rest = divmod(layers, len(pattern))
    counts = Counter({kind: n * periods for kind, n in Counter(pattern).items()})
    counts.update(pattern[:rest])
    if last is not None:
        counts.subtract([pattern[rest - 1]])
        counts.update([last])
    return +counts


def kinds_in(info: ValidationInfo) -> set[LayerKind]:
    """The kinds of layers, of a model whose keys before this one are known."""
    pattern, layers = info.data.get("layer_pattern"), info.data.get("num_layers")
    if not pattern or layers is None:
        return {"full"}
    return set(counted(pattern, info.data.get("last_layer"), layers))


def no_attention(why: str) -> str:
    """The refusal of a part of attention where there is none."""
    return (
        f"is for attention, and all layers are linear, which {why}; remove it, or write full or "
        "window for some layers"
    )


def something_turns(what: str, info: ValidationInfo) -> None:
    """Refuse `what` is about rotary positions where no layer has them."""
    if not {"full", "window"} & kinds_in(info):
        raise refusal(
            f"{what} has nothing to turn, because all layers are nope or linear; remove it, or "
            "write full or window for some layers"
        )
