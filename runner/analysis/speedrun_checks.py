"""What the lab checks of a speedrun entry before it has a rank, each by a name that plans, comments
and boards use. Pure.

Some checks are made where models are trained and scored (`runner.worker.models.look_ahead_probe`,
`engine.training.evaluate`). They leave a sentence, and `named` says of which check it is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from runner.schema.record import EnteredRun, Plan
from runner.schema.tracks import Track

CHECKS = {
    "data": "each model begins from nothing and trains on the track's text alone; it is scored on "
    "the track's validation text and number of tokens",
    "seeds": "the entry has as many seeds as the track says, no more and no fewer, and each seed "
    "gives another model",
    "device": "the lab trained it, and measured its time, on the track's kind of device",
    "prefixes": "what the model predicts at secret positions is the same without the text after "
    "them",
    "probabilities": "the lab turns the model's answers into probabilities, which sum to 1; on "
    "random text, too, all answers are finite",
    "memory": "the model is a function of its parameters and of the tokens before: it can keep "
    "nothing from one question for the next",
    "isolation": "own code runs where it cannot reach what scores it, and leaves the planned model",
}


class Failed(NamedTuple):
    """Why an entry has no rank. `check`: the one of `CHECKS` that says so; empty where the entry
    passes all of them and the track ranks no such row, for example above its budget."""

    words: str
    check: str = ""

    def __str__(self) -> str:
        return f"{self.words} (check: {self.check})" if self.check else self.words


_SAID = (  # by the code that trains and scores
    ("change with the tokens after it", "prefixes"),
    ("when it sees the whole window", "prefixes"),
    ("give no probabilities", "probabilities"),
    ("cannot be exported", "memory"),
    ("without isolation", "isolation"),
    ("another model than was planned", "isolation"),
)


def named(words: str) -> Failed:
    """What a run's own record says of it, with the check that found it."""
    return Failed(words, next((check for said, check in _SAID if said in words), ""))


def of_runs(runs: Sequence[EnteredRun]) -> Failed | None:
    """The first check that the runs of an arm fail; None if they pass."""
    for run in runs:
        where = f"seed {run.seed}: "
        if run.evaluated is None:
            return named(f"{where}it has no score ({run.why or 'it did not end'})")
        if failed := of_run(run):
            return failed._replace(words=where + failed.words)
    return _one_model(runs)


def of_run(run: EnteredRun) -> Failed | None:
    """Why the score of a run is rejected; None if it is not, or if there is none."""
    if run.evaluated is None:
        return None
    if run.own and not run.isolated:
        return named("its own code ran without isolation, so that its scores are its own report")
    if run.void:
        return named(run.void)
    if run.own_model and run.evaluated.examined is None:
        words = "its model was not asked again with no more than what comes before"
        return Failed(words, "prefixes")
    if run.evaluated.examined and run.evaluated.examined.void:
        return named(run.evaluated.examined.void)
    return None


def _one_model(runs: Sequence[EnteredRun]) -> Failed | None:
    """Two seeds that gave the same parameters, or exactly the same score, are one run."""
    for key in ("params_sha256", "bpb"):
        seen: dict[object, int] = {}
        for run in runs:
            value = getattr(run.evaluated, key)
            if run.own and value in seen:
                what = "the same model" if key == "params_sha256" else "exactly the same score"
                words = f"seeds {seen[value]} and {run.seed} gave {what}, so that they are one run"
                return Failed(words, "seeds")
            seen.setdefault(value, run.seed)
    return None


# ── Before it runs ───────────────────────────────────────────────────────────────────────────


def of_plan(track: Track, plan: Plan) -> Failed | None:
    """Why a plan's models are not trained on the track's text alone; None if they are."""
    wanted = track.data
    for name, step in plan.steps.items():
        if step.do == "import":
            return Failed(f"the step `{name}` brings a trained model", "data")
        if step.do not in ("train", "tune"):
            continue
        if step.config.get("init"):
            return Failed(f"the step `{name}` continues a trained model", "data")
        for other in (one for inputs in step.inputs.values() for one in inputs):
            if plan.steps[other].do == "tune":  # settings
                continue
            text = plan.steps[other].config if plan.steps[other].do == "tokenize" else {}
            if (source := text.get("source")) is None and plan.data:
                source = plan.data.source  # a corpus, which is tokenized as it is
            if source != wanted.source:
                words = f"`{name}` trains on {f'`{source}`' if source else f'the step `{other}`'}"
                return Failed(f"{words}, and this track's text is `{wanted.source}`", "data")
            sha256 = (text.get("sha256") or {}).get("train")
            if wanted.train_sha256 and sha256 and sha256 != wanted.train_sha256:
                words = f"`{name}` trains on another text than `{wanted.source}` of this track"
                return Failed(words, "data")
    return None


def of_seeds(track: Track, seeds: int) -> Failed | None:
    """Whether an entry has another number of seeds than its track; None if it has not."""
    if track.seeds is None or seeds == track.seeds:
        return None
    had = f"{seeds} seed{'' if seeds == 1 else 's'}"
    words = f"it has {had}, and this track takes exactly {track.seeds}: whoever may add seeds can "
    return Failed(f"{words}wait for a lucky one", "seeds")


def of_device(track: Track, hardware: str) -> Failed | None:
    """Whether an entry ran on other devices than its track compares; None if it did not."""
    if track.hardware is None or hardware == str(track.hardware):
        return None
    ran = hardware or "unknown hardware"
    return Failed(f"it ran on {ran}, and this track on {track.hardware}", "device")
