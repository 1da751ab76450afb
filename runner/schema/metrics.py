"""Metrics: the names of what scores measure, with unit and direction; and a score, as steps of the
lab write it and as records keep it. Pure.

    eval/bpb             bits per byte on the validation text
    eval/<part>/bpb      on one part of a mixture
    task/<name>/<what>   a benchmark
    weights/<what>       the parameters themselves
    labels/<what>        a classifier, on labels held out from it

The last part of a name says unit and direction (`WHATS`); any other last part has no direction.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, WithJsonSchema

from engine.config.fields import refusal
from runner.lib.base_record import Record
from runner.lib.bounds import Count, Figure, Size
from runner.lib.canonical_json import to_json
from runner.lib.problems import near

MAX_CHARACTERS = 80
PATTERN = r"^[a-z0-9_.-]+(/[a-z0-9_.-]+)+$"
BPB = "eval/bpb"
OUTPUT_NORM = "weights/output_norm"  # Frobenius norm of the output matrix of the lab's Decoder
AUC, CALIBRATION = "labels/auc", "labels/calibration"
MEASURED = "measured.json"  # in the output of a step of the lab that measures models
CURVES = "curves.json"  # in the output of an `evaluate` step: {label: {step: score of `BPB`}}

Direction = Literal["lower", "higher"]


class What(NamedTuple):
    """The unit and direction of a metric."""

    unit: str  # after a number, as " bits per byte"; empty: none
    short: str  # the same in tables and in sentences with many numbers
    better: Direction | None  # None: neither is better
    words: str
    further: str = ""  # follows the name of what it was measured on


WHATS = {
    "bpb": What("bits per byte", "bpb", "lower", "bits per byte"),
    "loss": What("nats per token", "nats", "lower", "loss"),
    "accuracy": What("", "", "higher", "share of right answers"),
    "accuracy_norm": What(
        *("", "", "higher", "share of right answers"),
        ", where the model answers with the choice that has the highest probability per character",
    ),
    "exact_match": What("", "", "higher", "share of answers that match exactly"),
    "pass_at_1": What("", "", "higher", "share of functions solved by one solution"),
    "pass_at_10": What("", "", "higher", "share of functions solved by one of 10 solutions"),
    "pass_at_100": What("", "", "higher", "share of functions solved by one of 100 solutions"),
    "auc": What("", "", "higher", "area under the ROC curve"),
    "calibration": What("", "", "lower", "expected calibration error"),
    "choice_prob_norm": What(
        *("", "", "higher", "mean probability of the right choice"),
        ", where the probabilities of all choices sum to 1",
    ),
}
# Of tasks of lm_eval only, under its names.
OF_LM_EVAL = {
    "acc_bytes": What("", "", "higher", "share of right answers by probability per byte"),
    "acc_mutual_info": What("", "", "higher", "share of right answers by mutual information"),
    "f1": What("", "", "higher", "F1"),
    "mcc": What("", "", "higher", "Matthews correlation"),
    "bleu": What("", "", "higher", "BLEU"),
    "chrf": What("", "", "higher", "chrF"),
    "chrfpp": What("", "", "higher", "chrF++"),
    **{name: What("", "", "higher", name.upper()) for name in ("rouge1", "rouge2", "rougel")},
    "ter": What("", "", "lower", "translation edit rate"),
    "brier_score": What("", "", "lower", "Brier score"),
    "perplexity": What("", "", "lower", "perplexity of the answer"),
    "word_perplexity": What("", "", "lower", "perplexity per word"),
    "byte_perplexity": What("", "", "lower", "perplexity per byte"),
    "bits_per_byte": What("bits per byte", "bpb", "lower", "bits per byte as lm_eval counts them"),
}


# What the tasks of the lab ask, after "`name` asks".
ASKS = {
    "cloze": "which of four words of the same length follows",
    "lexical-choice": "which spelling of the next word is right: one of the two has two letters "
    "exchanged",
    "word-order": "which order of the next four words is right: one of the two has the middle "
    "words exchanged",
    "humaneval": "for the rest of a Python function, and tests check it",
}


class Score(Record):
    """What a step of the lab measured of one model."""

    value: Figure
    items: Count | None = None  # what it is a mean over: windows, questions; None: one measurement
    standard_error: Size | None = None  # of the value, over the items
    chance: Figure | None = None  # what guessing gives


Measured = dict[str, Score]  # by metric


def _metric(name: str) -> str:
    if why := wrong(name):
        raise refusal("{why}", why=why)
    return name


Metric = Annotated[
    str,
    AfterValidator(_metric),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "maxLength": MAX_CHARACTERS}),
]


def wrong(name: str) -> str:
    """Why this is not the name of a metric; empty if it is."""
    if len(name) > MAX_CHARACTERS:
        return f"is longer than {MAX_CHARACTERS} characters; write a name such as {BPB}"
    if not re.fullmatch(PATTERN, name):
        return (
            f"{name!r} is not a metric; write parts of a–z, 0–9, `_`, `.` and `-` with `/` between "
            f"them, such as {BPB}"
        )
    return ""


def what(metric: str) -> What:
    """Its unit and direction."""
    last = metric.rpartition("/")[2]
    base, _, how = last.partition(".")  # `<metric>.<filter of lm_eval>`
    known = (WHATS | OF_LM_EVAL).get(base) or What("", "", None, last.replace("_", " "))
    return known._replace(words=f"{known.words}, read by {how}") if how and known.better else known


def better(metric: str) -> Direction | None:
    """Which of two scores is better: the lower, the higher, or neither."""
    return what(metric).better


def is_loss(metric: str) -> bool:
    """Whether it falls towards a floor as L = a·C^(−b) + c does, so that a law may be fitted."""
    return metric.rpartition("/")[2] in ("bpb", "loss")


def words(metric: str) -> str:
    """What it measures, as a clause: `bits per byte on the validation text; lower is better`."""
    family, *between, _ = metric.split("/")
    subject = what(metric).words
    if metric == OUTPUT_NORM:
        subject = (
            "Frobenius norm of the output matrix (from the last hidden layer to the vocabulary)"
        )
    elif family == "eval":
        part = f"`{'/'.join(between)}` in " if between else ""
        subject += f" on {part}the validation text"
    elif family == "labels":
        subject += " of a classifier on labels that were held out from it"
    elif family == "task":
        subject += f" on the benchmark `{'/'.join(between)}`"
    subject += what(metric).further
    found = better(metric)
    return (
        f"{subject}; {found} is better"
        if found
        else f"{subject}; neither higher nor lower is better"
    )


def asks(metrics: Iterable[str]) -> dict[str, str]:
    """Of these metrics' tasks those of the lab, each with what it asks."""
    tasks = dict.fromkeys(metric.split("/")[1] for metric in metrics if metric.startswith("task/"))
    return {task: ASKS[task] for task in tasks if task in ASKS}


def of_task(task: str, what: str) -> str:
    """A metric of a task; one that is too long ends in a digest of its whole name."""
    name = f"task/{task}/{what}"
    if len(name) <= MAX_CHARACTERS:
        return name
    return f"{name[: MAX_CHARACTERS - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def of_part(part: str, what: str = "bpb") -> str:
    """The metric of one part of a mixture."""
    return f"eval/{part}/{what}"


def never(metric: str) -> str:
    """Why no step of the lab could measure this metric of a trained model, with the near miss;
    empty if one might."""
    if metric in (AUC, CALIBRATION):
        return (
            f"`{metric}` is measured of a classifier, and a prediction is about trained models; "
            "the step `compare` shows the difference of classifiers"
        )
    family, *between, last = metric.split("/")
    of_tasks = [name for name in WHATS | OF_LM_EVAL if name not in ("auc", "calibration")]
    whats = of_tasks if family == "task" else ("bpb", "loss") if between else ("bpb",)
    if metric in (BPB, OUTPUT_NORM) or (between and family in ("eval", "task") and last in whats):
        return ""
    known = ["/".join((family, *between, name)) for name in whats] + [BPB, OUTPUT_NORM]
    meant = near(metric, known) or (
        f"; it measures {BPB}, eval/<part>/bpb of a mixture's part, task/<name>/<what> of a "
        f"benchmark, and {OUTPUT_NORM}"
    )
    return f"the lab measures no `{metric}`{meant}"


def unknown(metric: str, measured: Iterable[str]) -> str:
    """That no step measures this metric, with the near miss, as a clause."""
    measured = list(measured)
    listed = ", ".join(f"`{one}`" for one in measured[:8]) + (", …" if len(measured) > 8 else "")
    words = f"no step measures `{metric}`"
    return words + (near(metric, measured) or f"; it measures {listed or 'nothing'}")


def at_chance(score: Score, interval: tuple[float, float]) -> bool:
    """Whether an interval of a score includes what guessing gives."""
    return score.chance is not None and interval[0] <= score.chance <= interval[1]


def score(
    value: float,
    items: int | None = None,
    standard_error: float | None = None,
    chance: float | None = None,
) -> Score | None:
    """A score; None if the value is not finite, as of a model that diverged."""
    if not math.isfinite(value):
        return None
    return Score(value=value, items=items, standard_error=standard_error, chance=chance)


def written(measured: Mapping[str, Mapping[str, Score | None]]) -> bytes:
    """The content of `measured.json`: {label: {metric: score}}, without scores that are None; of
    `curves.json` likewise."""
    return to_json(
        {
            label: {name: one.model_dump(mode="json") for name, one in of.items() if one}
            for label, of in measured.items()
        }
    )
