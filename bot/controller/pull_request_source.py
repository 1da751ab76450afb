"""Reads what a commit declares: its experiment, as data at exactly this commit, never run.

Its files come through `bot.github.commit_tree`, which checks them against the commit's tree. What a
job of the plan needs of them, its text and its own modules, is kept in the store by digest.
"""

import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bot.controller.lab_files import LabFiles
from bot.github import Entry, GitHub, Gone, Refused
from bot.github.commit_tree import Tree, Unfit
from bot.messages.plan_comment import UNSEEN
from bot.model.thread import Finding
from runner.execution import aliases, git_source
from runner.history import forecasts, provenance, results_entries
from runner.history.execution_index import Past
from runner.lib.problems import BadExperiment, Problem
from runner.planning import code_digest, planned_steps, planner
from runner.schema import record
from runner.schema.lab_config import LabConfig
from runner.schema.record import Preregistration, Source
from runner.spec import declaration
from runner.spec.graph import Graph
from runner.store.store import Store

MAX_MODULES = 200  # own modules of an experiment
MAX_CODE = 500_000  # bytes of all of them; parsing takes a thousand times as much memory
MAX_DIFFERENCES = 5  # listed per alias
BROKEN = (
    "The lab's own files on its default branch have mistakes, so that nothing can be planned. "
    "A maintainer mends them; then comment `/plan`."
)
# Errors that a stranger's file may raise unexpectedly.
UNREADABLE = (ValueError, TypeError, KeyError, RecursionError, MemoryError)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Declared:
    """Reads declarations."""

    store: Store
    github: GitHub
    past: Past
    lab: LabFiles

    def finding(self, repository: int, base: str, head: str, rung: int = 1) -> Finding:
        """What `head` declares that `base` does not; for a ladder, this rung. Raises `Later` if
        GitHub does not answer."""
        try:
            return self._finding(repository, base, head, rung)
        except Gone:  # perhaps GitHub does not show it yet
            raise
        except Refused as error:  # GitHub refuses; a retry would not change that
            words = f"{UNSEEN} what this commit changes ({error})."
            return Finding(None, problems=(words,))
        except UNREADABLE as error:
            # It must not block its thread forever.
            log.exception("%s could not be read", head)
            words = f"This commit's declaration cannot be read ({type(error).__name__})."
            return Finding(None, problems=(words,))

    def _finding(self, repository: int, base: str, head: str, rung: int) -> Finding:
        changed = self.github.changed(base, head)
        entered = self._entered(changed, head)
        return replace(self._experiment(repository, changed, head, rung), entered=entered)

    def _entered(
        self, changed: Sequence[str], head: str
    ) -> tuple[results_entries.EnteredFile, ...]:
        """The commit's results files, checked against the leaderboard."""
        paths = [path for path in changed if _is_results(path)]
        if not paths:
            return ()
        files, most = Tree(self.github, head, ""), results_entries.MAX_FILES
        standing = results_entries.standing(results_entries.merged(self.store), but=paths)
        found = []
        for n, path in enumerate(paths):
            try:
                if n >= most:
                    raise Unfit(f"a pull request brings {most} results files at most")
                content = files.fetch(path, most=results_entries.MAX_BYTES)
                found.append(results_entries.examined(path, content, standing))
            except (Unfit, KeyError) as error:
                why = str(error) if isinstance(error, Unfit) else "it is not in the commit's tree"
                plain = results_entries.plain(path)
                found.append(results_entries.EnteredFile(path=plain, problem=why))
        return results_entries.once(found)

    def _experiment(self, repository: int, changed: Sequence[str], head: str, rung: int) -> Finding:
        """What the commit declares below `experiments/`. A results file alone declares nothing."""
        parts = [path.split("/") for path in changed if not _is_results(path)]
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
        decided = self.lab.now()
        if decided.config is None:
            return Finding(folder, problems=(BROKEN, *map(str, decided.problems)))
        try:
            files = Tree(self.github, head, folder)
            plan = self._plan(repository, folder, files, rung, decided.config)
            tree = git_source.tree_id({name: (file.mode, file.sha) for name, file in files.items()})
            return Finding(
                folder,
                plan=plan,
                standings=provenance.standing_now(self.store, plan),
                drifted=drifted(self.store, plan),
                source=Source(tree=tree, commit=head),
                foretold=forecasts.foretell(self.past, plan),
                spread=self.past.spread(plan),
                spreads=self.past.spreads(plan, plan.predictions),
                per_step=self.past.per_step(),
                begun=self.past.begun(repository, plan),
                other_design=self.past.other_design(repository, plan),
            )
        except BadExperiment as error:
            return Finding(folder, problems=tuple(str(problem) for problem in error.problems))

    def fingerprint(self, repository: int, folder: str, head: str, rung: int = 1) -> str | None:
        """The fingerprint of the plan that the current lab makes of `folder` at `head` (for a
        ladder, of this rung); None if it makes none. Raises `Later` if GitHub does not answer."""
        try:
            if (lab := self.lab.now().config) is None:
                return None
            files = Tree(self.github, head, folder)
            return self._plan(repository, folder, files, rung, lab).fingerprint
        except (BadExperiment, Refused):
            return None
        except UNREADABLE:
            log.exception("%s could not be read", head)
            return None

    def _plan(
        self, repository: int, folder: str, files: Tree, rung: int, lab: LabConfig
    ) -> record.Plan:
        name = declaration.declaring(folder, files.__contains__)
        file = f"{folder}/{name}"
        text = declaration.read(_declaration(files, name, file), file)
        graph = declaration.drafted(text, lab)
        sealed = self._sealed(repository, graph)
        return self._resolved(graph, folder, files, sealed, rung)

    def _sealed(self, repository: int, graph: Graph) -> Preregistration | None:
        number = graph.experiment.preregistration
        if number is None:
            return None
        path = f"preregistrations/{repository}/{number}/1"
        sealed = record.read(self.store, path, Preregistration)
        if sealed is None:
            words = (
                f"#{number} is not a sealed preregistration of this repository; open one with "
                "the experiment form, wait for its seal, then push to this branch again"
            )
            graph.complaints.say(("preregistration",), words)
        return sealed

    def _resolved(
        self,
        graph: Graph,
        folder: str,
        files: Tree,
        sealed: Preregistration | None,
        rung: int,
    ) -> record.Plan:
        """The plan, for which own modules and texts are read. What its jobs need of them is
        kept."""
        where = ("steps",) if graph.experiment.data is None else ("own",)
        modules = _modules(graph, files)
        if len(modules) > MAX_MODULES:
            words = f"{folder} has {len(modules)} modules; the lab reads {MAX_MODULES} at most"
            graph.complaints.lose(where, words)
        if (size := sum(entry.size for entry in modules.values())) > MAX_CODE:
            words = f"the modules of {folder} have {size:,} bytes; {MAX_CODE:,} is the most"
            graph.complaints.lose(where, words)
        with tempfile.TemporaryDirectory() as there:
            laid = Path(there, folder)
            laid.mkdir(parents=True)
            if len(modules) <= MAX_MODULES and size <= MAX_CODE:
                with _fitting(graph, where):
                    files.lay(laid, list(modules))
                    binary = filter(code_digest.BINARY.search, files)  # refused by name
                    files.mark(laid, binary)
            for names, place in _texts(graph, files):
                with _fitting(graph, place):
                    files.lay(laid, names)
            try:
                files.check()  # also files that nobody has read
            except Unfit as error:
                if not any(str(error) == one.message for one in graph.complaints.found):
                    graph.complaints.add(Problem(folder, None, "", str(error)))
            plan = planner.make_plan(graph, laid, called=folder, sealed=sealed, rung=rung)
            planner.keep(self.store, plan, laid)
            return plan


@contextmanager
def _fitting(graph: Graph, place: tuple[str | int, ...]) -> Iterator[None]:
    """Report files that cannot be written at this place of the declaration."""
    try:
        yield
    except Unfit as error:
        graph.complaints.lose(place, str(error))


def _modules(graph: Graph, files: Tree) -> dict[str, Entry]:
    """The experiment's own modules, if any of them runs."""
    if not any(node.own for node in graph.nodes.values()) and declaration.PYTHON_NAME not in files:
        return {}
    read = (".py", declaration.LOCK_NAME)
    return {name: entry for name, entry in files.items() if name.endswith(read)}


def _texts(graph: Graph, files: Tree) -> Iterator[tuple[list[str], tuple[str | int, ...]]]:
    """The experiment's own texts, prompts and tasks, each with the place that names it."""
    for name, node in graph.nodes.items():
        if named := [one for one in planned_steps.files_of(node) if one in files]:
            yield named, graph.source(name)


def _is_results(path: str) -> bool:
    return path.rpartition("/")[2] == results_entries.NAME


def _declaration(files: Tree, name: str, file: str) -> str:
    words, line = "there is no such file; an experiment is declared in it", None
    if name in files:
        try:
            return files.fetch(name).decode()
        except UnicodeDecodeError:
            words, line = "it is not UTF-8 text", 1
        except Unfit as error:
            words = str(error)
    raise BadExperiment([Problem(file, line, "", words)])


def drifted(store: Store, plan: record.Plan) -> tuple[str, ...]:
    """For each alias that would change its meaning, what differs and what to do."""
    found = aliases.drifted(aliases.known(store, plan), plan.steps)
    return tuple(
        f"{aliases.sentence(drift, plan.experiment)} What differs: "
        + "; ".join(f"`{step}`: {why}" for step, why in drift.why[:MAX_DIFFERENCES])
        for drift in found
    )
