"""What a commit declares: its experiment, read as data at exactly this commit, never run.

Its files come through `bot.github.commit_tree`, which compares them with the commit's tree. What a
job of the plan needs of them, its text and its own modules, is kept in the store under its digest.
"""

import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bot.github import Changed, Entry, GitHub, Refused
from bot.github.commit_tree import Tree, Unfit
from bot.model.thread import Finding
from runner.execution import aliases, git_source
from runner.history import forecasts, provenance, results_entries
from runner.history.execution_index import Past
from runner.planning import code_digest, planner
from runner.schema import record
from runner.schema.record import Preregistration, Source, Standing
from runner.spec import declaration
from runner.spec.declaration import BadExperiment, Experiment
from runner.store.store import Store

MOST_MODULES = 200  # of an experiment's own
MOST_CODE = 500_000  # bytes of all of them; reading one takes a thousand times as much memory
MOST_DIFFERENCES = 5  # told of an alias


log = logging.getLogger(__name__)


class Declared:
    """Reads declarations."""

    def __init__(self, store: Store, github: GitHub, past: Past) -> None:
        self._store = store
        self._github = github
        self._past = past

    def finding(self, repository: int, base: str, head: str, rung: int = 1) -> Finding:
        """What `head` declares that `base` does not; of a ladder this rung. Raises `Later` where
        GitHub cannot say."""
        try:
            return self._finding(repository, base, head, rung)
        except Refused as error:  # GitHub will not say; trying again would not change that
            words = f"GitHub does not show what this commit changes ({error})."
            return Finding(None, problems=(words,))
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
            # A stranger's file that nobody thought of must not hold up its thread for good.
            log.exception("%s could not be read", head)
            words = f"This commit's declaration cannot be read ({type(error).__name__})."
            return Finding(None, problems=(words,))

    def _finding(self, repository: int, base: str, head: str, rung: int) -> Finding:
        changed = self._github.changed(base, head)
        entered = self._entered(changed, head)
        return replace(self._experiment(repository, changed, head, rung), entered=entered)

    def _entered(
        self, changed: Sequence[Changed], head: str
    ) -> tuple[results_entries.EnteredFile, ...]:
        """The results files that the commit brings, examined against what is on the board."""
        paths = [file.path for file in changed if not file.removed and _is_results(file.path)]
        if not paths:
            return ()
        files = Tree(self._github, head, "")
        standing = results_entries.standing(results_entries.merged(self._store), but=paths)
        found = []
        for path in paths[: results_entries.MAX_FILES]:
            try:
                content = files.fetch(path, most=results_entries.MAX_BYTES)
                found.append(results_entries.examined(path, content, standing))
            except (Unfit, KeyError) as error:
                why = str(error) if isinstance(error, Unfit) else "it is not in the commit's tree"
                found.append(
                    results_entries.EnteredFile(path=results_entries.plain(path), problem=why)
                )
        for path in paths[results_entries.MAX_FILES :]:
            why = f"a pull request brings {results_entries.MAX_FILES} results files at most"
            found.append(results_entries.EnteredFile(path=results_entries.plain(path), problem=why))
        return results_entries.once(found)

    def _experiment(
        self, repository: int, changed: Sequence[Changed], head: str, rung: int
    ) -> Finding:
        """What the commit declares below `experiments/`. A results file alone declares nothing."""
        parts = [
            file.path.split("/")
            for file in changed
            if not file.removed and not _is_results(file.path)
        ]
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
            plan = self._plan(repository, folder, files, rung)
            tree = git_source.tree_id({name: (file.mode, file.sha) for name, file in files.items()})
            return Finding(
                folder,
                plan=plan,
                standings=self._standings(plan),
                drifted=drifted(self._store, plan),
                source=Source(tree=tree, commit=head),
                foretold=forecasts.foretell(self._past, plan),
                spread=self._past.spread(plan),
                begun=self._past.begun(repository, plan),
                other_design=self._past.other_design(repository, plan),
            )
        except BadExperiment as error:
            return Finding(folder, problems=tuple(str(problem) for problem in error.problems))

    def fingerprint(self, repository: int, folder: str, head: str, rung: int = 1) -> str | None:
        """Of the plan that the lab as it is now makes of `folder` at `head`, of a ladder of this
        rung; None where it makes none. Raises `Later` where GitHub cannot say."""
        try:
            return self._plan(repository, folder, self._files(folder, head), rung).fingerprint
        except (BadExperiment, Refused):
            return None
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError):
            log.exception("%s could not be read", head)
            return None

    def _files(self, folder: str, head: str) -> Tree:
        return Tree(self._github, head, folder)

    def _plan(self, repository: int, folder: str, files: Tree, rung: int) -> record.Plan:
        name = declaration.declaring(folder, files.__contains__)
        file = f"{folder}/{name}"
        experiment = declaration.parse(_declaration(files, name, file), file)
        sealed = self._sealed(repository, experiment)
        plan = self._resolved(experiment, folder, files, sealed, rung)
        try:
            files.check()  # also of what nobody has read
        except Unfit as error:
            raise BadExperiment([declaration.Problem(folder, 1, "", str(error))]) from error
        return plan

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

    def _resolved(
        self,
        experiment: Experiment,
        folder: str,
        files: Tree,
        sealed: Preregistration | None,
        rung: int,
    ) -> record.Plan:
        """The plan, for which the experiment's own modules and texts are read. What its jobs need
        of them is kept for these."""
        where = ("steps",) if experiment.data is None else ("own",)
        modules = _modules(experiment, files)
        if len(modules) > MOST_MODULES:
            words = f"{folder} has {len(modules)} modules; the lab reads {MOST_MODULES} at most"
            raise BadExperiment([experiment.problem(where, words)])
        if (size := sum(entry.size for entry in modules.values())) > MOST_CODE:
            words = f"the modules of {folder} have {size:,} bytes; {MOST_CODE:,} is the most"
            raise BadExperiment([experiment.problem(where, words)])
        with tempfile.TemporaryDirectory() as there:
            laid = Path(there, folder)
            laid.mkdir(parents=True)
            with _fitting(experiment, where):
                files.lay(laid, list(modules))
                files.mark(laid, filter(code_digest.BINARY.search, files))  # refused by their names
            for names, place in _texts(experiment, files):
                with _fitting(experiment, place):
                    files.lay(laid, names)
            plan = planner.make_plan(experiment, laid, called=folder, sealed=sealed, rung=rung)
            planner.keep(self._store, plan, laid)
            return plan


@contextmanager
def _fitting(experiment: Experiment, place: tuple[str | int, ...]) -> Iterator[None]:
    """What cannot be laid down is a problem of this place of the declaration."""
    try:
        yield
    except Unfit as error:
        raise BadExperiment([experiment.problem(place, str(error))]) from error


def _modules(experiment: Experiment, files: Tree) -> dict[str, Entry]:
    """The experiment's own modules, where anything of them is run."""
    if (
        not any(node.own for node in experiment.nodes.values())
        and declaration.PYTHON_NAME not in files
    ):
        return {}
    read = (".py", declaration.LOCK_NAME)
    return {name: entry for name, entry in files.items() if name.endswith(read)}


def _texts(
    experiment: Experiment, files: Tree
) -> Iterator[tuple[list[str], tuple[str | int, ...]]]:
    """The experiment's own texts, each with where it is named."""
    for name, node in experiment.nodes.items():
        source = str(node.config["source"]) if node.do == "tokenize" else ""
        if source in files and not planner.is_known(source):
            yield [source], experiment.source(name)


def _is_results(path: str) -> bool:
    return path.rpartition("/")[2] == results_entries.NAME


def _declaration(files: Tree, name: str, file: str) -> str:
    words = "there is no such file; an experiment is declared in it"
    if name in files:
        try:
            return files.fetch(name).decode()
        except UnicodeDecodeError:
            words = "it is not UTF-8 text"
        except Unfit as error:
            words = str(error)
    raise BadExperiment([declaration.Problem(file, 1, "", words)])


def drifted(store: Store, plan: record.Plan) -> tuple[str, ...]:
    """Of each alias that would mean something else now, what differs and what to do."""
    found = aliases.drifted(aliases.known(store, plan), plan.steps)
    return tuple(
        f"{aliases.sentence(drift, plan.experiment)} What differs: "
        + "; ".join(f"`{step}`: {why}" for step, why in drift.why[:MOST_DIFFERENCES])
        for drift in found
    )
