"""What a run needs on each device, from its configuration alone: whether the mesh divides the model
and the batch, how many bytes each device holds, and which changes would fit. Needs no JAX, so a
plan can check it before anything is compiled."""

import math
import re
from collections.abc import Iterator
from itertools import islice
from operator import mul
from typing import NamedTuple

from engine.config.flops import chunk
from engine.config.hardware import Platform
from engine.config.schema import ComputeConfig, LayerKind, MeshConfig, ModelConfig, TrainConfig
from engine.config.shapes import shapes

FLOAT32 = 4  # bytes of it: parameters, moments, gradients
USABLE = 0.92  # of a device's memory; the runtime, communication and fragmentation take the rest
# The loss is computed in at least MIN_CHUNKS chunks, with at most MAX_LOGITS logits per device at a
# time.
MIN_CHUNKS, MAX_LOGITS = 4, {"cpu": 2**21, "gpu": 2**28, "tpu": 2**28}  # 8 MiB and 1 GiB
EXPERTS = 4  # dimensions of a stack of experts' matrices: layer, expert, in, out
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}

# ── What a mesh divides ──────────────────────────────────────────────────────────────────────


class Misfit(NamedTuple):
    """A value that a mesh cannot divide."""

    field: str  # such as `model.num_heads`
    words: str  # the problem and what to do


def misfits(
    mesh: MeshConfig,
    *,
    devices: int | None = None,
    slices: int = 1,
    model: ModelConfig | None = None,
    train: TrainConfig | None = None,
) -> list[Misfit]:
    """Every given value that `mesh` does not divide, in so many slices; empty if all fits."""
    found = []
    if mesh.data % slices:
        words = f"data {mesh.data} cannot be spread over {slices} slices, and the other axes stay"
        words += f" inside of one; make data a multiple of {slices}"
        found.append(Misfit("compute.mesh", words))
    if devices is not None and mesh.devices != devices:
        experts = f" × expert {mesh.expert}" if mesh.expert > 1 else ""
        are = "is 1 device" if devices == 1 else f"are {devices} devices"
        words = (
            f"data {mesh.data} × fsdp {mesh.fsdp} × tensor {mesh.tensor}{experts} is a mesh of "
            f"{mesh.devices} and there {are}; make the product {devices}, for example "
            f"fsdp: {devices}"
        )
        found.append(Misfit("compute.mesh", words))
    if model is not None:
        moe, t = model.moe, mesh.tensor
        widths = [("intermediate_dim", model.intermediate_dim, "tensor", t)]
        if moe:
            widths = [
                ("moe.num_experts", moe.num_experts, "expert", mesh.expert),
                ("moe.expert_dim", moe.expert_dim, "tensor", t),
                ("moe.shared_dim", moe.shared_dim, "tensor", t),
                ("moe.latent_dim", moe.latent_dim or 0, "tensor", t),
                ("moe.latent_dim", moe.latent_dim or 0, "fsdp", mesh.fsdp),
            ]
        elif mesh.expert > 1:
            words = (
                f"expert {mesh.expert} divides experts, and the model has none; write fsdp: "
                f"{mesh.fsdp * mesh.expert} in its place, or give the model moe"
            )
            found.append(Misfit("compute.mesh", words))
        found += [
            Misfit(f"model.{field}", _remedy(field.rpartition(".")[2], value, axis, cut))
            for field, value, axis, cut in (
                ("hidden_dim", model.hidden_dim, "fsdp", mesh.fsdp),
                *widths,
                ("num_heads", model.num_heads, "tensor", t),
                ("num_kv_heads", model.num_kv_heads, "tensor", t),
                ("vocab_size", model.vocab_size, "tensor", t),
                ("gated_norm", model.gated_norm or 0, "tensor", t),
            )
            if value % cut
        ]
    if train is not None:
        rows, parts = mesh.rows, train.gradient_accumulation_steps
        axes, sizes = "data × fsdp", f"data {mesh.data} × fsdp {mesh.fsdp}"
        if mesh.expert > 1:
            axes, sizes = f"{axes} × expert", f"{sizes} × expert {mesh.expert}"
        for size in train.batch_sizes.sizes:
            if size % (rows * parts) == 0:
                continue
            each = f" in each of {parts} gradient_accumulation_steps" if parts > 1 else ""
            words = (
                f"train_batch_size {size} cannot be spread evenly over "
                f"{sizes} = {rows} groups of devices{each}; make it a "
                f"multiple of {rows * parts}, or {axes} smaller"
            )
            found.append(Misfit("train.train_batch_size", words))
    return found


def _remedy(field: str, value: int, axis: str, cut: int) -> str:
    fitting = [str(n) for n in range(1, min(value, cut) + 1) if value % n == 0]
    return (
        f"{axis} {cut} does not divide {field} {value}; write {axis}: "
        f"{' or '.join(fitting[-4:])}, or make {field} a multiple of {cut}"
    )


# ── What a device holds ──────────────────────────────────────────────────────────────────────


class Footprint(NamedTuple):
    """Bytes that one device holds at the peak of a step."""

    parameters: int
    moments: int  # the optimizer's state, and the average of the parameters if one is kept
    gradients: int  # with the copies of the weights in the compute dtype
    activations: int  # what the blocks keep for the backward pass, and their work space
    loss: int  # the current chunk of logits, the gradients of features and output matrix

    @property
    def total(self) -> int:
        return sum(self)


def attention_rows(seq_len: int, window: int | None) -> int:
    """How many queries the CPU's attention takes at a time. Measured: four blocks are as fast as
    more and compile faster, and 512 rows are enough."""
    return min(32 * math.ceil(seq_len / 128), 512, 32 * math.ceil((window or seq_len) / 32))


def footprint(
    model: ModelConfig, train: TrainConfig, compute: ComputeConfig, platform: Platform
) -> Footprint:
    """Estimate what one device holds. `tests/bench/memory.py` compares it with XLA.

    Weights are cut f·t times (fsdp · tensor), gains are not: p = weights / (f·t) + gains. Moments
    are 2p, but one instead of two for Muon's matrices, and p more for an average. Gradients are p,
    and p more for their sum with gradient accumulation. All these have 4 bytes. Copies in a compute
    dtype of a < 4 bytes take a·p, on TPUs only if layers are unrolled. With f > 1, whole weights
    (a/t each) are gathered: those of a block and of the next one (experts of one only), the output
    matrix, and with gradient accumulation the embedding.

    A device works on T = batch · sequence / (data · f · parts) tokens at a time. For each block it
    keeps, per token,

        2·(12 + a)·D            both norms: input, derivative of the square, scaled, times gain
        a·(2H + 2K)·h / t       queries, keys, values and the heads' outputs
        (12 + a)·(H + K)·h / t  with qk_norm: as for the other norms
        4·H·P / t               on the CPU's fast path and in the reference: probabilities of the P
                                keys that are computed for a query: in blocks of R rows
                                (`attention_rows`) (S + R)/2 or the window + R on average, or all S
        6·a·F / t               gate, up, three products of silu, and the input of down; of
                                experts, the width that a token goes through

    With experts the weights of these are cut by the axis `expert`, too, and so is the batch. A
    token of K among E experts then also keeps

        2·a·K·D                 what goes into its experts and what comes out
        8·4·E                   logits, biased ones, and their order

    and blocks of a CPU are padded, so that K·(D, F of an expert) counts one and a half times.
    An axis of e experts gathers the rows of e groups, with room for all to choose the experts here:
    then a token keeps 4·a·e·K·D of these, and 6·a·e·K·F/t in the experts (on a CPU with a
    capacity_factor, this in the place of e).

    Parts of a block keep per token what follows, with a norm's gate of rank r, and in a linear
    layer, which has no keys and probabilities, chunks of C positions:

        2·a·(3·D + 3·r / t)     gated_norm
        2·4·H·h / t             attention_gate or exclusive_attention
        a·(2·D + K·h / t)       short_convolution
        4·H·(24·h + 10·C + h²/C) / t    a linear layer: what is convolved, chunks, states
        2·a·D'                  experts of a latent_dim D', which takes the place of D above

    and per block its joined matrices once more, a · (q, k, v, gate, up)/t, and for the current
    block half as much again for its gradients. With `remat: block` it keeps a·D per token for each
    block, and the rest only for the current block; of norms half on TPUs. (XLA's CPU compiler keeps
    everything also with remat if layers are unrolled.)

    The loss holds the logits of a quarter of the tokens, or fewer if these exceed 1 GiB (8 MiB on a
    CPU), and their gradient, 4 + 4 bytes each, and a more if a < 4; also the gradients of the
    features, a·D per token, and of the output matrix, 4·D·V / t.
    """
    mesh, parts, a = compute.mesh, train.gradient_accumulation_steps, bytes_of(compute, platform)
    f, t, e = mesh.fsdp, mesh.tensor, mesh.expert
    D, V, L = model.hidden_dim, model.vocab_size, model.num_layers
    T = max(train.batch_sizes.sizes) * model.seq_len / (mesh.rows * parts)

    matrices = experts = ends = gains = factors = 0.0
    for path, shape in shapes(model).items():
        if path in ("embedding", "lm_head"):
            ends += math.prod(shape)
        elif path.endswith("_proj"):
            of_experts = math.prod(shape) / e if len(shape) == EXPERTS else 0
            experts += of_experts
            matrices += of_experts or math.prod(shape)
            factors += math.prod(shape[:-2]) * (shape[-2] ** 2 + shape[-1] ** 2)
        else:
            gains += math.prod(shape)
    p = (matrices + ends) / (f * t) + gains
    one_moment = {"lion": p, "muon": matrices / (f * t), "muonh": matrices / (f * t)}
    moments = 2 * p - one_moment.get(train.optimizer, 0.0)
    if train.optimizer == "soap":  # two square factors and their bases, on each device
        moments += 2 * factors

    casts_all = a < FLOAT32 and (platform != "tpu" or compute.unrolls(L))  # else layer by layer
    copies = a * p if casts_all else 0
    if f > 1:
        ends_gathered = (2 if parts > 1 else 1) * D * V
        copies += a * ((2 * matrices - experts) / L + ends_gathered) / t
    blocks = [_block(model, kind, compute, platform, T) for kind in model.kind_counts]
    if compute.remat == "none" or (platform == "cpu" and compute.unrolls(L)):
        kept = sum(map(mul, blocks, model.kind_counts.values())) + 0.5 * max(blocks)
    else:
        kept = L * T * a * D + max(blocks)
        if platform == "tpu":  # it keeps less of the norms of a block that it computes again
            kept -= T * (12 + a) * D
    logits = T * V / t / max(MIN_CHUNKS, math.ceil(T * V / t / MAX_LOGITS[platform]))
    of_logits = 2 * FLOAT32 + (a if a < FLOAT32 else 0)
    return Footprint(
        parameters=round(FLOAT32 * p),
        moments=round(FLOAT32 * (moments + (p if train.ema_decay else 0))),
        gradients=round(FLOAT32 * p * (2 if parts > 1 else 1) + copies),
        activations=round(kept),
        loss=round(of_logits * logits + a * D * T + FLOAT32 * D * V / t),
    )


def _block(
    model: ModelConfig, kind: LayerKind, compute: ComputeConfig, platform: Platform, T: float
) -> float:
    """Bytes that a block of this kind keeps for the backward pass; see `footprint`."""
    a, t, e = bytes_of(compute, platform), compute.mesh.tensor, compute.mesh.expert
    D, F, H, K = model.hidden_dim, model.intermediate_dim, model.num_heads, model.num_kv_heads
    h, S = model.head_dim, model.seq_len
    per_token = 2 * (12 + a) * D + 6 * a * F / t
    if kind == "linear":
        C = chunk(S)
        qkv = 4 * D * H * h
        per_token += FLOAT32 * H * (24 * h + 10 * C + h * h / C) / t
    else:
        window = model.sliding_window if kind == "window" else None
        if compute.attention == "reference":
            seen = 2.0 * S  # probabilities and their exponentials
        elif platform == "cpu":
            rows = attention_rows(S, window)
            seen = min((S + rows) / 2, (window or S) + rows)
        else:
            seen = 0.0
        qkv = D * (H + 2 * K) * h
        per_token += a * (2 * H + 2 * K) * h / t + FLOAT32 * H * seen / t
        if model.qk_norm != "none":
            per_token += (12 + a) * (H + K) * h / t
        if model.attention_gate or model.exclusive_attention:
            per_token += 2 * FLOAT32 * H * h / t
    if rank := model.gated_norm:
        per_token += 2 * a * (3 * D + 3 * rank / t)
    if model.short_convolution:
        per_token += a * (2 * D + K * h / t)
    joined: float = qkv + 2 * D * F
    if moe := model.moe:
        padded = 1.5 if platform == "cpu" else 1.0
        inner = moe.latent_dim or D
        chosen_rows = padded * 2
        chosen = chosen_rows * inner + (padded - 1) * 6 * moe.expert_dim / t
        per_token += a * moe.top_k * chosen + 8 * FLOAT32 * moe.num_experts
        of_experts = 3 * inner * moe.expert_dim * moe.num_experts / e
        if e > 1:  # each device has room for all pairs of a token and an expert along the axis
            held = e if moe.capacity_factor is None or platform != "cpu" else moe.capacity_factor
            pair = (4 * held - chosen_rows) * inner + 6 * (held - 1) * moe.expert_dim / t
            per_token += a * moe.top_k * pair
        if moe.latent_dim:
            per_token += 2 * a * inner
        joined = qkv + 2 * D * moe.shared_dim + of_experts
    return T * per_token + a * joined / t


def bytes_of(compute: ComputeConfig, platform: Platform) -> int:
    """Bytes of a number in the compute dtype."""
    dtype = compute.dtype or ("float32" if platform == "cpu" else "bfloat16")
    return 4 if dtype == "float32" else 2


# ── What would fit ───────────────────────────────────────────────────────────────────────────


class Choice(NamedTuple):
    """A change of the configuration, and what a device then holds."""

    words: str
    total: int


def choices(
    model: ModelConfig,
    train: TrainConfig,
    compute: ComputeConfig,
    platform: Platform,
    available: float,
) -> list[Choice]:
    """Changes that bring the estimate to at most `available` bytes, the mildest first: more
    accumulation and remat change results only by rounding, more devices cost more, and a smaller
    batch trains differently. For each kind of change, the smallest that is enough; empty if none
    helps."""

    batch, parts, mesh = train.train_batch_size, train.gradient_accumulation_steps, compute.mesh
    groups = mesh.rows

    def fits(words: str, train: TrainConfig, compute: ComputeConfig) -> Iterator[Choice]:
        if not misfits(compute.mesh, model=model, train=train):
            total = footprint(model, train, compute, platform).total
            if total <= available:
                yield Choice(words, total)

    def more_parts(compute: ComputeConfig, also: str) -> Iterator[Choice]:
        for n in range(parts + 1, min(batch // groups, 1024) + 1):
            if batch % (groups * n) == 0:
                changed = train.model_copy(update={"gradient_accumulation_steps": n})
                yield from fits(f"gradient_accumulation_steps: {n}{also}", changed, compute)

    def more_devices() -> Iterator[Choice]:
        for n in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
            larger = mesh.model_copy(update={"fsdp": mesh.fsdp * n})
            changed = compute.model_copy(update={"mesh": larger})
            yield from fits(f"fsdp: {larger.fsdp} on {n} times the devices", train, changed)

    def less_work() -> Iterator[Choice]:
        for n in range(2, min(batch // (groups * parts), 1024) + 1):
            rows = batch // (groups * parts * n) * groups * parts
            changed = train.model_copy(update={"train_batch_size": rows})
            yield from fits(f"train_batch_size: {rows}, which is another run", changed, compute)

    found = [*islice(more_parts(compute, ""), 1)]
    if compute.remat == "none":
        remat = compute.model_copy(update={"remat": "block"})
        again = [*islice(fits("remat: block", train, remat), 1)]
        if not found and not again:
            again = [*islice(more_parts(remat, " with remat: block"), 1)]
        found += again
    return [*found, *islice(more_devices(), 1), *islice(less_work(), 1)]


def what_fits(
    model: ModelConfig,
    train: TrainConfig,
    compute: ComputeConfig,
    error: str,
    available: int | None,
    platform: Platform,
) -> str:
    """The message for an out-of-memory error: what XLA asked for, what the device has, what the
    estimate is, and what would fit. `error` is XLA's message; `available` is the bytes of one
    device, if known."""
    held = footprint(model, train, compute, platform)
    asked = asked_for(error)
    words = [
        "memory is out: "
        + (f"{size(asked)} were asked for" if asked else "what was asked for is not said")
        + (f" on a device with {size(available)}" if available else ""),
        "by formula each device holds "
        + ", ".join(f"{size(part)} of {name}" for name, part in held._asdict().items())
        + f", {size(held.total)} in all",
    ]
    # If the device does not say what it has, the size of the refused request is the only measure.
    room = USABLE * available if available else held.total / 2
    fitting = choices(model, train, compute, platform, room)
    if fitting:
        words.append(("what fits: " if available else "what takes half: ") + listed(fitting))
    else:
        words.append("nothing of batch, accumulation, remat and fsdp would: make the model smaller")
    return "; ".join(words)


def listed(choices: list[Choice]) -> str:
    """Choices on one line."""
    return "; or ".join(f"{choice.words} ({size(choice.total)})" for choice in choices)


def asked_for(error: str) -> int | None:
    """The bytes that XLA could not allocate, parsed from its message; None if it does not say."""
    size_in = r"(?:allocat\w*|request for|used|temporaries)\s+\(?([\d.,]+)\s*"
    size_in += r"(?:([KMGTP])i?B?\b|bytes)"
    found = re.search(size_in, error, re.IGNORECASE)
    if not found:
        return None
    number, unit = found.groups(default="")
    return round(float(number.replace(",", "").rstrip(".")) * UNITS[unit.upper()])


def size(size: float) -> str:
    """Bytes as `13.5 GiB`, `824 MiB` or `1.2 KiB`."""
    unit = min(4, max(0, math.floor(math.log2(max(size, 1)) / 10)))
    value = size / 2 ** (10 * unit)
    name = ("bytes", "KiB", "MiB", "GiB", "TiB")[unit]
    return f"{value:.3g} {name}" if value < 1000 else f"{value:,.0f} {name}"
