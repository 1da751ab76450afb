"""Speedrun entries: the public file format, and checks for impossible entries. Pure.

`speedrun_results.json` is {"runs": [{"run_info": {…}}]} with the fields of `RunInfo`, as Marin's
speedrun defines it. Written files have exactly these; when reading, unknown keys inside
`model_config`, `train_config` and `resources` are kept.

An audit reports what is impossible and what is only odd, each with its figures. It computes
everything that it can itself: parameters and FLOPs from the shape, tokens from batches and their
length, hardware FLOPs from time, chips and their peak.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from engine.config import flops
from engine.config.schema import ModelConfig
from runner.lib import bounds
from runner.schema import lab_config

CLOSE = 0.01  # relative; computed figures that differ by less are equal
MAX_COUNT = 10**30  # for any count; larger ones would overflow
VOCABULARY = 128_256  # of the tokenizer that the public speedrun prescribes
PUBLIC_TOKENS = 10_000_000_000
DATA_TOKENS = {  # tokens of the prescribed data
    "fineweb-edu-10b": PUBLIC_TOKENS,
    "fineweb_edu_subcache_10b": PUBLIC_TOKENS,
}
PEAKS = {  # dense bfloat16 FLOP/s of one chip, from vendors
    "TPU v4": 2.75e14,
    "TPU v5e": 1.97e14,
    "TPU v5p": 4.59e14,
    "TPU v6e": 9.18e14,
    "A100": 3.12e14,
    "H100": 9.895e14,
}
TIMESTAMP = "%Y-%m-%d %H:%M:%S UTC"
# The keys of a model's shape: our names, except the last of the sizes.
SIZES = (
    *("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "head_dim"),
    *("vocab_size", "seq_len", "max_seq_len"),
)
TIED = "tie_word_embeddings"
BATCHES = ("train_batch_size", "num_train_steps")


class BadFile(ValueError):
    """A results file cannot be read; the message says where and why."""


class Author(BaseModel):
    """An author of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    affiliation: str
    url: str


class RunInfo(BaseModel):
    """One run, with the public names. The figures are its author's."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    author: Author
    description: str
    device_flops: FiniteFloat = Field(gt=0)  # peak FLOP/s of one chip
    bpb: FiniteFloat = Field(alias="eval/paloma/c4_en/bpb")
    model: dict[str, Any] = Field(alias="model_config")
    train: dict[str, Any] = Field(alias="train_config")
    model_flops: FiniteFloat
    model_flops_per_token: FiniteFloat
    model_size: int = Field(ge=-MAX_COUNT, le=MAX_COUNT)  # parameters
    num_chips: int = Field(gt=0, le=MAX_COUNT)
    num_devices: int = Field(gt=0, le=MAX_COUNT)
    resources: dict[str, Any]
    run_completion_timestamp: str
    tokenized_dataset: str
    total_tokens: int = Field(ge=-MAX_COUNT, le=MAX_COUNT)
    training_hardware_flops: FiniteFloat
    training_time: FiniteFloat  # seconds
    wandb_run_link: str | None


# The fields of a public row that a results file has, by their names there. The other two,
# `results_filepath` and `run_name`, describe the file.
PUBLIC = {
    "author": "author",
    "eval_paloma_c4_en_bpb": "eval/paloma/c4_en/bpb",
    "model_flops": "model_flops",
    "model_size": "model_size",
    "run_completion_timestamp": "run_completion_timestamp",
    "training_hardware_flops": "training_hardware_flops",
    "training_time": "training_time",
    "wandb_link": "wandb_run_link",
}


# ── The file ─────────────────────────────────────────────────────────────────────────────────


def read(content: bytes) -> list[RunInfo]:
    """The runs of a `speedrun_results.json`. Raises BadFile with the run and the field."""
    try:
        found = bounds.plain(content)
    except ValueError as error:
        raise BadFile(f"it is not JSON: {error}") from error
    runs = found.get("runs") if isinstance(found, dict) else None
    if not isinstance(runs, list) or not runs:
        raise BadFile('it has no list "runs" with runs in it')
    infos = []
    for number, run in enumerate(runs):
        if not isinstance(run, dict) or "run_info" not in run:
            raise BadFile(f'runs[{number}] has no "run_info"')
        try:
            infos.append(RunInfo.model_validate(run["run_info"]))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BadFile(f"runs[{number}].run_info.{where}: {first['msg']}") from error
    return infos


def write(runs: Iterable[RunInfo]) -> bytes:
    """A `speedrun_results.json` with exactly the public fields."""
    dumped = [{"run_info": run.model_dump(mode="json", by_alias=True)} for run in runs]
    return json.dumps({"runs": dumped}, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


# ── The audit ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Finding:
    """Something impossible or odd in an entry."""

    entry: str
    kind: Literal["impossible", "odd"]
    rule: str  # a key of RULES
    words: str


@dataclass(frozen=True)
class Rule:
    """One check of the audit."""

    words: str
    field: str  # the field of a results file that it checks


RULES = {
    "figure": Rule("Every number is finite and positive, training time included", "figures"),
    "utilisation": Rule("The model FLOPs are not more than the hardware FLOPs", "model_flops"),
    "peak": Rule(
        "Time × chips × peak FLOP/s equals the hardware FLOPs and is at least the model FLOPs",
        "training_hardware_flops",
    ),
    "chips": Rule(
        "The peak FLOP/s are those of a known chip",
        "device_flops",
    ),
    "twice": Rule("Each W&B run is entered only once", "wandb_run_link"),
    "data": Rule("A run trains on each token of the data at most once", "total_tokens"),
    "parameters": Rule("The number of parameters follows from the model's shape", "model_size"),
    "per token": Rule("The FLOPs per token follow from the model's shape", "model_flops_per_token"),
    "model flops": Rule("The model FLOPs are 3 × forward FLOPs per token × tokens", "model_flops"),
    "length": Rule("The number of tokens is batch size × steps × training length", "total_tokens"),
}


def audit(
    entries: Mapping[str, RunInfo], standing: Mapping[str, str] | None = None
) -> list[Finding]:
    """Findings about whole entries, by name. `standing`: the owners of W&B runs (`wandb_run`) that
    are already on the leaderboard."""
    found = _audit_rows([_as_row(name, run) for name, run in entries.items()])
    for name, run in entries.items():
        link = wandb_run(run.wandb_run_link)
        if link and (other := (standing or {}).get(link)):
            words = f"its W&B run is already entered as {other}"
            found.append(Finding(name, "impossible", "twice", words))
        try:
            found += list(_of_whole(name, run))
        except OverflowError:
            words = "its configuration has numbers that are too large"
            found.append(Finding(name, "impossible", "figure", words))
    return found


def _as_row(name: str, run: RunInfo) -> dict[str, Any]:
    given = run.model_dump(by_alias=True)
    return {key: given[of] for key, of in PUBLIC.items()} | {"results_filepath": name}


def _audit_rows(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Findings about the fields that a public row has."""
    found: list[Finding] = []
    links = defaultdict[str, list[str]](list)
    for row in rows:
        name = str(row["results_filepath"])
        wrong = list(_of_figures(name, row))
        found += wrong or _of_costs(name, row)
        if link := wandb_run(row.get("wandb_link")):
            links[link].append(name)
    for names in links.values():
        for name in names if len(names) > 1 else ():
            others = ", ".join(other for other in names if other != name) or "this file again"
            words = f"it has the same W&B run as {others}"
            found.append(Finding(name, "impossible", "twice", words))
    return found


def _of_figures(name: str, row: Mapping[str, Any]) -> Iterator[Finding]:
    for key, of in PUBLIC.items():
        if key.endswith(("flops", "time", "bpb", "size")) and not _is_positive(row.get(key)):
            yield Finding(name, "impossible", "figure", f"{of} is {row.get(key)!r}")
    completed = row.get("run_completion_timestamp")
    try:
        datetime.strptime(str(completed), TIMESTAMP)
    except ValueError:
        words = f"run_completion_timestamp is {completed!r}"
        yield Finding(name, "impossible", "figure", words)


def _of_costs(name: str, row: Mapping[str, Any]) -> Iterator[Finding]:
    model, hardware = float(row["model_flops"]), float(row["training_hardware_flops"])
    if model > hardware:
        words = f"model FLOPs {model:.4g} are {model / hardware:.2f} times the hardware FLOPs"
        yield Finding(name, "impossible", "utilisation", words)


def _is_positive(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value <= MAX_COUNT if isinstance(value, int) else 0 < value < math.inf


def _short(value: object) -> str:
    if isinstance(value, int | float) and value >= MAX_COUNT:
        return "too large"
    return repr(value)[:60]


def _whole(value: object) -> int | None:
    """A whole number, also written as 512.0; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def wandb_run(link: object) -> str | None:
    """The name of a W&B run from any link to its page; None if it is no such link."""
    found = re.search(r"wandb\.ai/([^/?#\s]+)/([^/?#\s]+)/runs/([^/?#\s]+)", str(link or ""))
    return "/".join(found.groups()) if found else None


def _of_whole(name: str, run: RunInfo) -> Iterator[Finding]:
    """Findings about one entry. Raises OverflowError for numbers that are too large."""
    if wrong := {key: value for key, value in _given(run) if not _is_positive(value)}:
        words = "; ".join(f"{key} is {_short(value)}" for key, value in wrong.items())
        yield Finding(name, "impossible", "figure", words)
        return
    peaks = (*PEAKS.values(), *(kind.peak_flops for kind in lab_config.defaults().devices.values()))
    if all(_differ(run.device_flops, peak) for peak in peaks):
        words = f"{run.device_flops:.4g} FLOP/s are the peak of no known chip"
        yield Finding(name, "odd", "chips", words)
    holds = DATA_TOKENS.get(run.tokenized_dataset.strip("/ ").rpartition("/")[2].casefold())
    if holds and run.total_tokens > holds:
        words = f"{run.total_tokens:,} tokens are more than the {holds:,} tokens of the data"
        yield Finding(name, "impossible", "data", words)
    if _has_experts(run.model):
        words = "it has experts: the lab cannot check its size and its FLOPs"
        yield Finding(name, "odd", "parameters", words)
    for rule, words, counted, claimed in _counted(run):
        both = (f"{x:,}" if isinstance(claimed, int) else f"{x:.6g}" for x in (counted, claimed))
        yield Finding(name, "impossible", rule, f"{words} {', not '.join(both)}")


def _given(run: RunInfo) -> Iterator[tuple[str, object]]:
    """Values of a whole entry that must be numbers if present, beyond those of a row."""
    for key in ("device_flops", "model_flops_per_token", "total_tokens"):
        yield key, getattr(run, key)
    for key in SIZES:
        if run.model.get(key) is not None:
            yield key, run.model[key]
    for key in BATCHES:
        if _whole(run.train.get(key)) is not None:
            yield key, run.train[key]


def _counted(run: RunInfo) -> Iterator[tuple[str, str, float, float]]:
    """Claims that contradict other figures: the rule, the computed figure as text and as a number,
    and the claimed one."""
    could = run.training_time * run.num_chips * run.device_flops
    if could < run.model_flops:
        words = "the FLOPs that its chips can compute in its time are"
        yield "peak", words, could, run.model_flops
    elif _differ(could, run.training_hardware_flops):
        yield "peak", "time × chips × peak is", could, run.training_hardware_flops
    shape, tokens, per_token = _shape(run.model), run.total_tokens, run.model_flops_per_token
    taken, words = 3 * per_token * tokens, f"3 × {per_token:.6g} × {tokens:,} is"
    if shape is not None:
        parameters, forward = flops.parameters(shape), flops.forward_flops_per_token(shape)
        if parameters != run.model_size:
            yield "parameters", "the parameters of the shape are", parameters, run.model_size
        if _differ(forward, per_token):
            yield "per token", "the forward FLOPs per token of the shape are", forward, per_token
        taken = flops.model_flops(shape, tokens)
        words = f"the model FLOPs of {tokens:,} tokens of this shape are"
    if _differ(taken, run.model_flops):
        yield "model flops", words, taken, run.model_flops
    batch, steps = (_whole(run.train.get(key)) for key in BATCHES)
    trained = _whole(run.train.get("train_seq_len")) or (shape.seq_len if shape else None)
    if batch is not None and steps is not None and trained is not None:
        words = f"{steps:,} batches of {batch:,} windows of {trained:,} tokens are"
        if _differ(batch * steps * trained, tokens):
            yield "length", words, batch * steps * trained, tokens


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > CLOSE * max(abs(one), abs(other))


def _shape(config: Mapping[str, Any]) -> ModelConfig | None:
    """The model's shape as the lab counts it; None if it is of another kind."""
    if _has_experts(config):
        return None
    known: dict[str, Any] = {
        key.removeprefix("max_"): _whole(config[key])
        for key in SIZES
        if config.get(key) is not None
    }
    if config.get(TIED) is not None:
        known[TIED] = config[TIED]
    if config.keys() == ModelConfig.model_fields.keys():  # the lab wrote it
        known = dict(config)
    try:
        return ModelConfig.model_validate({"vocab_size": VOCABULARY} | known)
    except ValidationError:
        return None


def _has_experts(config: Mapping[str, Any]) -> bool:
    return any("expert" in key and (_whole(value) or 0) > 1 for key, value in config.items())
