"""Speedrun entries: the public file format, and what cannot be true of an entry. Pure.

`speedrun_results.json` is {"runs": [{"run_info": {…}}]} with the fields of `RunInfo`, as Marin's
speedrun defines it. What is written here holds exactly these; of what is read, keys that nobody
knows inside `model_config`, `train_config` and `resources` stay as they are.

An audit says what is impossible, and what is only odd, each with its figures. It believes nothing
that it can count: parameters and FLOPs follow from the shape, tokens from batches and their length,
hardware FLOPs from time, chips and their peak.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from engine.config import flops
from engine.config.schema import ModelConfig
from runner.lib import bounds
from runner.schema.devices import KINDS

CLOSE = 0.01  # relative; counted figures that differ by less are the same
MOST = 10**30  # of anything that is counted; larger ones are no counts, and overflow
VOCABULARY = 128_256  # of the tokenizer that the public speedrun prescribes
DATA_TOKENS = {  # what prescribed data hold
    "fineweb-edu-10b": 10_000_000_000,
    "fineweb_edu_subcache_10b": 10_000_000_000,
}
PEAKS = {  # dense bfloat16 FLOP/s of one chip, as vendors state them
    "TPU v4": 2.75e14,
    "TPU v5e": 1.97e14,
    "TPU v5p": 4.59e14,
    "TPU v6e": 9.18e14,
    "A100": 3.12e14,
    "H100": 9.895e14,
}
OUR_PEAKS = tuple(kind.peak_flops for kind in KINDS.values())
TIMESTAMP = "%Y-%m-%d %H:%M:%S UTC"
SHAPE = {  # of the public configurations: our name
    "hidden_dim": "hidden_dim",
    "intermediate_dim": "intermediate_dim",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
    "num_kv_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "seq_len": "seq_len",
    "max_seq_len": "seq_len",
    "vocab_size": "vocab_size",
    "tie_word_embeddings": "tie_word_embeddings",
}


TIED = "tie_word_embeddings"
BATCHES = ("train_batch_size", "num_train_steps")


class BadFile(ValueError):
    """A results file cannot be read; the message says where and why."""


class Author(BaseModel):
    """Who entered a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    affiliation: str
    url: str


class RunInfo(BaseModel):
    """One run, by the public names. The figures are its author's."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    author: Author
    description: str
    device_flops: FiniteFloat = Field(gt=0)  # peak FLOP/s of one chip
    bpb: FiniteFloat = Field(alias="eval/paloma/c4_en/bpb")
    model: dict[str, Any] = Field(alias="model_config")
    train: dict[str, Any] = Field(alias="train_config")
    model_flops: FiniteFloat
    model_flops_per_token: FiniteFloat
    model_size: int = Field(ge=-MOST, le=MOST)  # parameters
    num_chips: int = Field(gt=0, le=MOST)
    num_devices: int = Field(gt=0, le=MOST)
    resources: dict[str, Any]
    run_completion_timestamp: str
    tokenized_dataset: str
    total_tokens: int = Field(ge=-MOST, le=MOST)
    training_hardware_flops: FiniteFloat
    training_time: FiniteFloat  # seconds
    wandb_run_link: str | None


# The ten fields of a public row: name in the results file, or where the file lies.
PUBLIC = {
    "author": "author",
    "eval_paloma_c4_en_bpb": "eval/paloma/c4_en/bpb",
    "model_flops": "model_flops",
    "model_size": "model_size",
    "run_completion_timestamp": "run_completion_timestamp",
    "training_hardware_flops": "training_hardware_flops",
    "training_time": "training_time",
    "wandb_link": "wandb_run_link",
    "results_filepath": "(its folder)",
    "run_name": "(its folder, from the board's)",
}
FOLDER, SHORT = "(its folder)", "(its folder, from the board's)"


def from_public(row: Mapping[str, Any]) -> dict[str, Any]:
    """A public row by the names of the results file."""
    return {PUBLIC[name]: value for name, value in row.items()}


def to_public(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The other way; of a whole file's run, only what a row has."""
    return {name: entry[of] for name, of in PUBLIC.items() if of in entry}


# ── The file ─────────────────────────────────────────────────────────────────────────────────


def read(content: bytes) -> list[RunInfo]:
    """The runs of a `speedrun_results.json`. Raises BadFile, with the run and the field."""
    try:
        found = bounds.plain(content)
    except ValueError as error:
        raise BadFile(f"it is no JSON: {error}") from error
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
    """Something about an entry that cannot be, or that is only odd."""

    entry: str
    kind: Literal["impossible", "odd"]
    rule: str  # a key of RULES
    words: str


RULES = {
    "figure": "Figures are finite and above 0, and the time is one",
    "utilisation": "Model FLOPs are at most hardware FLOPs",
    "peak": "Time × chips × peak FLOP/s is at least the model FLOPs, and is the hardware FLOPs",
    "chips": "Hardware FLOPs a second are those of a whole number of known chips, whose peak is "
    "known",
    "twice": "A W&B run is entered once",
    "data": "A run sees each token of the data at most once",
    "parameters": "Parameters follow from the model's shape",
    "per token": "FLOPs a token follow from the model's shape",
    "model flops": "Model FLOPs are 3 × forward FLOPs a token × tokens",
    "length": "Tokens are batches × steps × the length that was trained",
}
FIELDS = {  # of a results file, that a rule is about
    "figure": "figures",
    "utilisation": "model_flops",
    "peak": "training_hardware_flops",
    "chips": "training_hardware_flops",
    "twice": "wandb_run_link",
    "data": "total_tokens",
    "parameters": "model_size",
    "per token": "model_flops_per_token",
    "model flops": "model_flops",
    "length": "total_tokens",
}


def audit(
    entries: Mapping[str, RunInfo], standing: Mapping[str, str] | None = None
) -> list[Finding]:
    """What is found about whole entries, by their names. `standing`: of W&B runs (`wandb_run`) that
    are on the board already, whose they are."""
    rows = {
        name: {
            **to_public(run.model_dump(by_alias=True)),
            "results_filepath": name,
            "run_name": name,
        }
        for name, run in entries.items()
    }
    found = audit_rows(list(rows.values()), chips=False)
    for name, run in entries.items():
        if other := (standing or {}).get(wandb_run(run.wandb_run_link)):
            words = f"its W&B run is on the board already, as {other}"
            found.append(Finding(name, "impossible", "twice", words))
        try:
            found += _of_whole(name, run)
        except OverflowError:
            words = "its configuration has numbers that are too large to be counted with"
            found.append(Finding(name, "impossible", "figure", words))
    return found


def audit_rows(rows: Sequence[Mapping[str, Any]], *, chips: bool = True) -> list[Finding]:
    """What is found about rows of the public board, as far as their ten fields allow."""
    found: list[Finding] = []
    for row in rows:
        found += _of_figures(row)
    finite = [row for row in rows if not _of_figures(row)]
    for row in finite:
        name = str(row["results_filepath"])
        model, hardware = float(row["model_flops"]), float(row["training_hardware_flops"])
        if model > hardware:
            words = f"model FLOPs {model:.4g} are {model / hardware:.2f} times the hardware FLOPs"
            found.append(Finding(name, "impossible", "utilisation", words))
        if chips and not _known_chips(hardware / float(row["training_time"])):
            words = (
                f"{hardware / float(row['training_time']):.4g} hardware FLOP/s are those of no "
                "whole number of chips that are known here"
            )
            found.append(Finding(name, "odd", "chips", words))
        if chips and (passes := _passes(row)) and passes > 1 + CLOSE:
            words = (
                f"its size is that of a public shape, whose model FLOPs at 4,096 tokens a window "
                f"make {passes:.1f} passes over 10 billion tokens"
            )
            found.append(Finding(name, "odd", "data", words))
    links = defaultdict(list)
    for row in rows:
        if link := wandb_run(row.get("wandb_link")):
            links[link].append(str(row["results_filepath"]))
    for names in links.values():
        for name in names if len(names) > 1 else ():
            others = ", ".join(other for other in names if other != name) or "this file again"
            found.append(
                Finding(name, "impossible", "twice", f"its W&B run is also that of {others}")
            )
    return found


def _of_figures(row: Mapping[str, Any]) -> list[Finding]:
    name = str(row["results_filepath"])
    wanted = [of for of in PUBLIC if of.endswith(("flops", "time", "bpb", "size"))]
    found = [
        Finding(name, "impossible", "figure", f"{PUBLIC[of]} is {row.get(of)!r}")
        for of in wanted
        if not _is_positive(row.get(of))
    ]
    try:
        datetime.strptime(str(row.get("run_completion_timestamp")), TIMESTAMP)
    except ValueError:
        words = f"run_completion_timestamp is {row.get('run_completion_timestamp')!r}"
        found.append(Finding(name, "impossible", "figure", words))
    return found


def _is_positive(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value <= MOST if isinstance(value, int) else math.isfinite(value) and value > 0


def _short(value: object) -> str:
    if isinstance(value, int | float) and value >= MOST:
        return "more than can be"
    return repr(value)[:60]


def _whole(value: object) -> int | None:
    """A whole number, also where it is written as 512.0; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def wandb_run(link: object) -> str:
    """A W&B run's own name, however its page was linked."""
    found = re.search(r"wandb\.ai/([^/?#\s]+)/([^/?#\s]+)/runs/([^/?#\s]+)", str(link or ""))
    return "/".join(found.groups()) if found else ""


def _known_chips(rate: float) -> bool:
    return any(
        round(rate / peak) >= 1 and abs(rate / peak - round(rate / peak)) < CLOSE
        for peak in PEAKS.values()
    )


def _passes(row: Mapping[str, Any]) -> float:
    """How often a run of one of the public shapes saw 10 billion tokens; 0 for another shape."""
    for size in ("130m", "300m", "520m", "1.2b"):
        shape = ModelConfig.model_validate(
            {"size": size, "seq_len": 4096, "vocab_size": VOCABULARY}
        )
        if flops.parameters(shape) == row["model_size"]:
            tokens = float(row["model_flops"]) / 3 / flops.forward_flops_per_token(shape)
            return tokens / DATA_TOKENS["fineweb-edu-10b"]
    return 0.0


def _of_whole(name: str, run: RunInfo) -> list[Finding]:
    found = []

    def say(rule: str, words: str, kind: Literal["impossible", "odd"] = "impossible") -> None:
        found.append(Finding(name, kind, rule, words))

    rest = {
        "device_flops": run.device_flops,
        "model_flops_per_token": run.model_flops_per_token,
        "total_tokens": run.total_tokens,
    }
    shaped = {key: run.model.get(key) for key in SHAPE if key != TIED}
    numbers = {key: run.train.get(key) for key in BATCHES if _whole(run.train.get(key)) is not None}
    rest |= {key: value for key, value in shaped.items() if value is not None} | numbers
    if wrong := {key: value for key, value in rest.items() if not _is_positive(value)}:
        say("figure", "; ".join(f"{key} is {_short(value)}" for key, value in wrong.items()))
        return found
    if not any(not _differ(run.device_flops, peak) for peak in (*PEAKS.values(), *OUR_PEAKS)):
        words = f"{run.device_flops:.4g} FLOP/s are the peak of no chip that is known here"
        say("chips", words, "odd")
    could = run.training_time * run.num_chips * run.device_flops
    if could < run.model_flops:
        say("peak", f"its chips could do {could:.4g} FLOPs in its time; it claims {_of(run)}")
    elif _differ(could, run.training_hardware_flops):
        say(
            "peak",
            f"time × chips × peak is {could:.4g}, and training_hardware_flops "
            f"{run.training_hardware_flops:.4g}",
        )
    holds = DATA_TOKENS.get(run.tokenized_dataset.strip("/ ").rpartition("/")[2].casefold())
    if holds and run.total_tokens > holds:
        say("data", f"{run.total_tokens:,} tokens are more than the {holds:,} of the data")
    shape = _shape(run.model)
    if _has_experts(run.model):
        words = "it has experts, which are not counted here: its size and FLOPs are its own word"
        say("parameters", words, "odd")
    if shape is not None:
        parameters, per_token = flops.parameters(shape), flops.forward_flops_per_token(shape)
        if parameters != run.model_size:
            say("parameters", f"the shape has {parameters:,} parameters, not {run.model_size:,}")
        if _differ(per_token, run.model_flops_per_token):
            say(
                "per token",
                f"the shape takes {per_token:.6g} forward FLOPs a token, not "
                f"{run.model_flops_per_token:.6g}",
            )
        if _differ(flops.model_flops(shape, run.total_tokens), run.model_flops):
            say(
                "model flops",
                f"{run.total_tokens:,} tokens of this shape take "
                f"{flops.model_flops(shape, run.total_tokens):.6g} model FLOPs, not {_of(run)}",
            )
    elif _differ(3 * run.model_flops_per_token * run.total_tokens, run.model_flops):
        say(
            "model flops",
            f"3 × {run.model_flops_per_token:.6g} × {run.total_tokens:,} is not {_of(run)}",
        )
    batch, steps = (_whole(run.train.get(key)) for key in BATCHES)
    trained = _whole(run.train.get("train_seq_len")) or (shape.seq_len if shape else None)
    if batch is not None and steps is not None and trained is not None:
        counted = batch * steps * trained
        if _differ(counted, run.total_tokens):
            say(
                "length",
                f"{steps:,} batches of {batch:,} windows of {trained:,} tokens are {counted:,} "
                f"tokens, not {run.total_tokens:,}",
            )
    return found


def _of(run: RunInfo) -> str:
    return f"{run.model_flops:.6g}"


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > CLOSE * max(abs(one), abs(other))


def _shape(config: Mapping[str, Any]) -> ModelConfig | None:
    """The model as the lab counts it; None for one that is not of the lab's kind."""
    if _has_experts(config):
        return None
    known = {
        SHAPE[key]: value if key == TIED else _whole(value)
        for key, value in config.items()
        if key in SHAPE and value is not None
    }
    if config.keys() == ModelConfig.model_fields.keys():  # it was written here
        known = dict(config)
    try:
        return ModelConfig.model_validate({"vocab_size": VOCABULARY} | known)
    except ValidationError:
        return None


def _has_experts(config: Mapping[str, Any]) -> bool:
    return any("expert" in key and (_whole(value) or 0) > 1 for key, value in config.items())
