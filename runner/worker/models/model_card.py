"""Model cards: Markdown about an exported model, from the plan (data, tokens, how to reproduce) and
from the scores that the lab measured. Pure, except `scores_in`. Titles and names are strangers'
text and are escaped."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from engine.config.schema import BatchSizes
from runner.analysis.estimates import Interval, interval_of
from runner.analysis.score_table import around
from runner.lib import bounds, untrusted_files

MEASURED, SCORES = "measured.json", "scores.json"
FRONT = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["regatta"]}
NO_LICENCE = "The experiment names none. Ask its authors before you use the model."


class Score(NamedTuple):
    """What a step of the lab measured of one model."""

    value: float
    error: float | None = None  # standard error over items


Scores = Mapping[str, Mapping[str, Score]]  # {label: {metric: score}}


def scores_in(folders: Iterable[Path]) -> dict[str, dict[str, Score]]:
    """All scores in the outputs of steps that measure models. Raises Refused and ValueError."""
    found: dict[str, dict[str, Score]] = {}
    for folder in folders:
        for label, of in _json(folder / SCORES).items():
            found.setdefault(label, {}).setdefault("eval/bpb", Score(float(of["bpb"])))
        for label, of in _json(folder / MEASURED).items():
            for metric, score in of.items():
                value = Score(float(score["value"]), score.get("standard_error"))
                found.setdefault(label, {})[metric] = value
    return found


def _json(path: Path) -> dict[str, Any]:
    data = untrusted_files.read(path.resolve(), bounds.MOST_KEPT)
    return {} if data is None else dict(bounds.plain(data))


def written(
    config: Mapping[str, Any],
    label: str,
    model: Mapping[str, Any],
    parameters: int,
    scores: Scores,
    *,
    chats: bool,
    stop: str | None = None,
) -> str:
    """The card of the model with this label. `config` is that of the `export` step, `model` the
    model's own. `stop` is what ends an answer, if that is no token of its own."""
    about = config["about"]
    licence = config["licence"]
    front = {**FRONT, **({"license": licence} if licence else {})}
    name = f" ({label})" if label else ""
    parts = [
        "---\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items()) + "---",
        f"# {escaped(about.get('title', 'A language model') + name)}",
        f"A decoder with {parameters:,} parameters: {model['num_layers']} layers of width "
        f"{model['hidden_dim']}, a context of {model['seq_len']:,} tokens and a vocabulary of "
        f"{model['vocab_size']:,}. Regatta trained it, measured it and wrote this card from its "
        "records.",
        "## Use\n\n```python\n" + (_chat(stop) if chats else _PLAIN) + "```",
        _data(about, label),
        _scores(label, scores),
        _reproduce(about),
        f"## Licence\n\n{licence or NO_LICENCE}",
        _licences(about, label),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


_PLAIN = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER")
model = AutoModelForCausalLM.from_pretrained("THIS FOLDER")
prompt = tokenizer("Once", return_tensors="pt", return_token_type_ids=False)
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=64)[0]))
"""
_CHAT = """\
from transformers import pipeline

chat = pipeline("text-generation", "THIS FOLDER")
said = chat([{"role": "user", "content": "Hello"}], max_new_tokens=64STOP)
print(said[0]["generated_text"][-1])
"""


def _chat(stop: str | None) -> str:
    # In ASCII, and without what would end the block of code.
    written = json.dumps(stop).replace("`", "\\u0060")
    return _CHAT.replace("STOP", "" if stop is None else f", stop_sequence={written}")


def _data(about: Mapping[str, Any], label: str) -> str:
    """What the model read, step by step, for it alone."""
    steps = about.get("steps", {})
    lines = []
    for name in _chain(about, label):
        config = steps[name]["config"]
        lines.append(f"- `{plain(name)}` ({plain(steps[name]['do'])}): {_said(config)}")
    return "## Data and training\n\n" + "\n".join(lines) if lines else ""


def _chain(about: Mapping[str, Any], label: str) -> list[str]:
    """The steps that a model depends on, each after its inputs."""
    steps, found = about.get("steps", {}), dict[str, None]()

    def add(name: str) -> None:
        for other in steps[name]["inputs"]:
            add(other)
        found.setdefault(name)

    if label in about.get("models", {}):
        add(about["models"][label])
    return list(found)


def _said(config: Mapping[str, Any]) -> str:
    """What matters of a step's configuration."""
    train, model, found = config.get("train"), config.get("model"), config.get("found")
    if isinstance(found, Mapping) and "corpus" in config:
        files, sha256 = f"{found['files']:,} files", found["sha256"][:16]
        return f"`{plain(config['corpus'])}`, {found['bytes']:,} bytes in {files}, `{sha256}…`"
    if isinstance(train, Mapping) and isinstance(model, Mapping) and "seq_len" in model:
        batch = BatchSizes.of(train)
        tokens = batch.until(train["num_train_steps"]) * model["seq_len"]
        return (
            f"{tokens:,} tokens in {train['num_train_steps']:,} steps of "
            f"{', then '.join(f'{size:,}' for size in batch.sizes)} × {model['seq_len']:,}, "
            f"learning rate {train['learning_rate']:g}, seed {config.get('seed', 0)}"
        )
    words = (f"{key} {_short(value)}" for key, value in config.items() if value not in (None, {}))
    said = plain(", ".join(words))
    return f"`{said}`" if said else "no settings"


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"of {key} {_short(inner)}" for key, inner in value.items())
    text = value if isinstance(value, str) else json.dumps(value)
    if re.fullmatch("[0-9a-f]{64}", text):
        return f"{text[:16]}…"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _licences(about: Mapping[str, Any], label: str) -> str:
    """The licences of the corpora that the model read."""
    steps = about.get("steps", {})
    chain = (steps[name] for name in _chain(about, label))
    configs = (of["config"] for of in chain if of["do"] in ("corpus", "tokenizer"))
    found = {of["corpus"]: of["found"]["licence"] for of in configs if of.get("found")}
    lines = [f"- `{plain(corpus)}`: {escaped(licence)}" for corpus, licence in found.items()]
    return "It was trained on texts under these licences:\n\n" + "\n".join(lines) if lines else ""


def _scores(label: str, scores: Scores) -> str:
    mine = scores.get(label)
    if not mine:
        return ""
    arm = _arm(label)
    alike = [other for other in scores if _arm(other) == arm]
    rows = []
    for metric, score in sorted(mine.items()):
        over_items = _words(around(score.value, score.error)) if score.error else "not known"
        every = [scores[other][metric].value for other in alike if metric in scores[other]]
        over_seeds = "one seed"
        if len(every) > 1:
            over_seeds = f"{fmean(every):.4f}, {_words(interval_of(every))} ({len(every)} seeds)"
        rows.append(f"| `{plain(metric)}` | {score.value:.4f} | {over_items} | {over_seeds} |")
    return (
        "## Scores\n\nThe lab computed them from the parameters. The first interval is over the "
        "items that were scored, the second over seeds of the same recipe; both are 95 %.\n\n"
        "| metric | score | interval by items | mean of the seeds, interval |\n"
        "| --- | --- | --- | --- |\n" + "\n".join(rows)
    )


def _arm(label: str) -> str:
    return ",".join(part for part in label.split(",") if not part.startswith("seed="))


def _words(interval: Interval) -> str:
    return f"{interval[0]:.4f} to {interval[1]:.4f}"


def _reproduce(about: Mapping[str, Any]) -> str:
    if "experiment" not in about:
        return ""
    lines = [f"Experiment: `{plain(about['experiment'])}`."]
    if about.get("preregistration"):
        lines.append(f"Its predictions were registered in issue #{about['preregistration']}.")
    if about.get("commit"):
        lines.append(f"Commit of the experiment: `{plain(about['commit'])}`.")
    if about.get("execution"):
        execution = plain(about["execution"])
        lines.append(f"Execution: `{execution}`; `regatta reproduce {execution}` runs it again.")
    run = f"Run it with `regatta run {plain(about['experiment'])}`."
    return "## Reproduce\n\n" + "\n".join([*lines, run])


def escaped(text: str) -> str:
    """A stranger's line as Markdown that shows these characters."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", " ".join(text.split()))


def plain(text: str) -> str:
    """A stranger's line for inside of backticks, or where it is a name."""
    return re.sub(r"[`<>&|]", "", " ".join(str(text).split()))
