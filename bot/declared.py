"""What a commit declares: its experiment, read as data at exactly this commit, never run.

Files come from the commit's tree by their blob ids. Links, submodules and huge files are refused.
"""

import logging
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bot.facts import Finding
from bot.github import Entry, GitHub, Refused
from engine.tokenize import Text
from runner import aliases, checkout, planning, provenance, record, spec
from runner.record import Preregistration, Source, Standing
from runner.spec import BadExperiment, Experiment
from runner.store import Store

MOST_BYTES = 5_000_000  # of one file
MOST_MODULES = 200  # of an experiment's own
MOST_CODE = 500_000  # bytes of all of them; reading one takes a thousand times as much memory
MOST_DIFFERENCES = 5  # told of an alias


log = logging.getLogger(__name__)


class Declared:
    """Reads declarations. Keeps the standard library's text, which does not change."""

    def __init__(self, store: Store, github: GitHub) -> None:
        self._store = store
        self._github = github
        self._texts: dict[str, Text] = {}

    def finding(self, repository: int, base: str, head: str) -> Finding:
        """What `head` declares that `base` does not. Raises `Later` where GitHub cannot say."""
        try:
            return self._finding(repository, base, head)
        except Refused as error:  # GitHub will not say; trying again would not change that
            words = f"GitHub does not show what this commit changes ({error})."
            return Finding(None, problems=(words,))
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
            # A stranger's file that nobody thought of must not hold up its thread for good.
            log.exception("%s could not be read", head)
            words = f"This commit's declaration cannot be read ({type(error).__name__})."
            return Finding(None, problems=(words,))

    def _finding(self, repository: int, base: str, head: str) -> Finding:
        changed = self._github.changed(base, head)
        parts = [file.path.split("/") for file in changed if not file.removed]
        names = sorted({part[1] for part in parts if part[0] == "experiments" and len(part) > 2})
        if not names:
            return Finding(None)
        if len(names) > 1:
            listed = ", ".join(f"`{name}`" for name in names[:5])
            words = f"One pull request declares one experiment; this one touches {listed}."
            return Finding(None, problems=(words,))
        folder = f"experiments/{names[0]}"
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", names[0]):
            words = (
                f"The folder's name may have letters, digits, `.`, `_` and `-` only ({folder!r})."
            )
            return Finding(None, problems=(words,))
        try:
            files = self._files(folder, head)
            plan = self._plan(repository, folder, files)
            tree = checkout.tree_id({name: (file.mode, file.sha) for name, file in files.items()})
            return Finding(
                folder,
                plan=plan,
                standings=self._standings(plan),
                drifted=drifted(self._store, plan),
                source=Source(tree=tree, commit=head),
            )
        except BadExperiment as error:
            return Finding(folder, problems=tuple(str(problem) for problem in error.problems))

    def fingerprint(self, repository: int, folder: str, head: str) -> str:
        """Of the plan that the lab as it is now makes of `folder` at `head`; empty where it makes
        none. Raises `Later` where GitHub cannot say."""
        try:
            return self._plan(repository, folder, self._files(folder, head)).fingerprint
        except (BadExperiment, Refused):
            return ""
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError):
            log.exception("%s could not be read", head)
            return ""

    def _files(self, folder: str, head: str) -> dict[str, Entry]:
        return {
            entry.path.removeprefix(f"{folder}/"): entry
            for entry in self._github.tree(head)
            if entry.path.startswith(f"{folder}/")
        }

    def _plan(self, repository: int, folder: str, files: Mapping[str, Entry]) -> record.Plan:
        name = spec.declaring(folder, files.__contains__)
        file = f"{folder}/{name}"
        experiment = spec.parse(self._declaration(files.get(name), file), file)
        sealed = self._sealed(repository, experiment)
        if experiment.nodes:
            return self._steps(experiment, folder, files, sealed)
        text = self._text(experiment, files)
        return planning.make_plan(experiment, folder, text, sealed)

    def _standings(self, plan: record.Plan) -> dict[str, Standing]:
        """How each step stands now, against the newest execution of this experiment."""
        if not plan.steps:
            return {}
        earlier = provenance.latest(self._store, plan.experiment)
        before = earlier.plan.steps if earlier else {}
        return provenance.standing(self._store, plan.steps, before)

    def _sealed(self, repository: int, experiment: Experiment) -> Preregistration | None:
        number = experiment.preregistration
        if number is None:
            return None
        path = f"preregistrations/{repository}/{number}/1"
        sealed = record.read(self._store, path, Preregistration)
        if sealed is None:
            words = (
                f"#{number} is no sealed preregistration of this repository; open one with "
                "the experiment form, wait for its seal, then push to this branch again"
            )
            raise BadExperiment([experiment.problem(("preregistration",), words)])
        return sealed

    def _text(self, experiment: Experiment, files: Mapping[str, Entry]) -> Text:
        """What the arms train on. A text of the experiment's own is kept for its jobs."""
        assert experiment.data
        source = experiment.data.source
        if source == "stdlib":
            if source not in self._texts:
                self._texts[source] = planning.the_text(experiment, None)
            return self._texts[source]
        with tempfile.TemporaryDirectory() as there:
            if entry := files.get(source):
                if unfit := _unfit(entry):
                    raise BadExperiment([experiment.problem(("data", "source"), unfit)])
                try:
                    _lay(Path(there), source, self._github.blob(entry.sha))
                except (OSError, ValueError) as error:
                    words = "no file can have this name"
                    raise BadExperiment([experiment.problem(("data", "source"), words)]) from error
            text = planning.the_text(experiment, Path(there))
        planning.keep_text(self._store, text)
        return text

    def _steps(
        self,
        experiment: Experiment,
        folder: str,
        files: Mapping[str, Entry],
        sealed: Preregistration | None,
    ) -> record.Plan:
        """The plan of steps, for which the experiment's own modules are read."""
        read = (".py", spec.LOCK_NAME)
        modules = {name: entry for name, entry in files.items() if name.endswith(read)}
        if len(modules) > MOST_MODULES:
            words = f"{folder} has {len(modules)} modules; the lab reads {MOST_MODULES} at most"
            raise BadExperiment([experiment.problem(("steps",), words)])
        if (size := sum(entry.size for entry in modules.values())) > MOST_CODE:
            words = f"the modules of {folder} have {size:,} bytes; {MOST_CODE:,} is the most"
            raise BadExperiment([experiment.problem(("steps",), words)])
        with tempfile.TemporaryDirectory() as there:
            for name, entry in modules.items():
                if unfit := _unfit(entry):
                    raise BadExperiment([experiment.problem(("steps",), unfit)])
                try:
                    _lay(Path(there, folder), name, self._github.blob(entry.sha))
                except (OSError, ValueError) as error:
                    words = f"no file can have the name {name!r}"
                    raise BadExperiment([experiment.problem(("steps",), words)]) from error
            laid = Path(there, folder)
            return planning.make_graph_plan(experiment, laid, called=folder, sealed=sealed)

    def _declaration(self, entry: Entry | None, file: str) -> str:
        words = _unfit(entry) if entry else "there is no such file; an experiment is declared in it"
        if entry and not words:
            try:
                return self._github.blob(entry.sha).decode()
            except UnicodeDecodeError:
                words = "it is not UTF-8 text"
        raise BadExperiment([spec.Problem(file, 1, "", words)])


def drifted(store: Store, plan: record.Plan) -> tuple[str, ...]:
    """Of each alias that would mean something else now, what differs and what to do."""
    found = aliases.drifted(aliases.known(store, plan), plan.steps)
    return tuple(
        f"{aliases.sentence(drift, plan.experiment)} What differs: "
        + "; ".join(f"`{step}`: {why}" for step, why in drift.why[:MOST_DIFFERENCES])
        for drift in found
    )


def _lay(folder: Path, name: str, content: bytes) -> None:
    """Write a file below `folder`. Raises ValueError for a name that leads out of it."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} leads out of its folder")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _unfit(entry: Entry) -> str:
    """Why a file of a stranger's commit is not fetched; empty if it may be."""
    if entry.mode not in ("100644", "100755"):
        return f"{entry.path} is a link or a submodule; add the file itself"
    if entry.size > MOST_BYTES:
        return f"{entry.path} is larger than {MOST_BYTES:,} bytes"
    return ""
