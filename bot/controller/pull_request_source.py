"""Reads what a commit declares: its experiment, as data at exactly this commit, never run.

Its files come through `bot.github.commit_tree`, which checks them against the commit's tree. What a
job of the plan needs of them, its text and its own modules, is kept in the store by digest.
"""

import logging
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path

from bot.controller.lab_files import LabFiles
from bot.github import Entry, GitHub, Gone, Later, Refused
from bot.github.commit_tree import Tree, Unfit
from bot.inbox.quarantine import NOT_THEIRS
from bot.messages.plan_comment import UNSEEN
from bot.model.thread import Finding
from runner.execution import aliases, git_source
from runner.history import forecasts, provenance, results_entries
from runner.history.execution_index import Past
from runner.lib.problems import BadExperiment, Problem
from runner.lib.yaml_lines import Path as Place
from runner.planning import code_digest, limited_plan, planner
from runner.planning.limited_plan import DeclaredText, Needed, Outline, Unfinished
from runner.schema import record
from runner.schema.lab_config import LabConfig
from runner.schema.record import Preregistration, Source
from runner.spec import declaration
from runner.store.store import Store

MAX_MODULES = 200  # own modules of an experiment
MAX_CODE = 500_000  # bytes of all of them; parsing takes a thousand times as much memory
MAX_DIFFERENCES = 5  # listed per alias
BROKEN = (
    "The lab's own files on its default branch have mistakes, so that nothing can be planned. "
    "A maintainer mends them; then comment `/plan`."
)

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
        except NOT_THEIRS:
            raise
        except Exception as error:  # a stranger's file must not block its thread forever
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
            return Finding(
                folder,
                plan=plan,
                standings=provenance.standing_now(self.store, plan),
                drifted=drifted(self.store, plan),
                source=Source(tree=_tree_id(files), commit=head),
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
        except NOT_THEIRS:
            raise
        except Exception:
            log.exception("%s could not be read", head)
            return None

    def _plan(
        self, repository: int, folder: str, files: Tree, rung: int, lab: LabConfig
    ) -> record.Plan:
        """The plan, for which own modules and texts are read. What its jobs need of them is
        kept. Raises Later while it is being made."""
        try:
            return self._limited(repository, folder, files, rung, lab)
        except Unfinished as error:
            raise Later(str(error), timedelta(seconds=error.wait)) from error

    def _limited(
        self, repository: int, folder: str, files: Tree, rung: int, lab: LabConfig
    ) -> record.Plan:
        name = declaration.declaring(folder, files.__contains__)
        file = f"{folder}/{name}"
        declared = DeclaredText(_declaration(files, name, file), file, lab, _tree_id(files))
        needs = limited_plan.outline(declared)
        with tempfile.TemporaryDirectory() as there:
            laid = Path(there, folder)
            laid.mkdir(parents=True)
            losses, problems = _lay(needs, folder, files, laid), list[Problem]()
            try:
                files.check()  # also files that nobody has read
            except Unfit as error:
                if all(str(error) != why for _, why in losses):
                    problems.append(Problem(folder, None, "", str(error)))
            sealed = self._sealed(repository, needs.preregistration)
            needed = Needed(laid, losses, problems, sealed)
            plan, contents = limited_plan.plan(declared, needed, rung)
            if missing := planner.unfetched(self.store, plan, folder):
                raise BadExperiment(missing)
            for name, content in contents.items():
                self.store.create(name, content)
            return plan

    def _sealed(self, repository: int, number: int | None) -> Preregistration | None:
        path = f"preregistrations/{repository}/{number}/1"
        return None if number is None else record.read(self.store, path, Preregistration)


def _lay(needs: Outline, folder: str, files: Tree, laid: Path) -> list[tuple[Place, str]]:
    """Write the experiment's own modules, texts, prompts and tasks. Returns what cannot be written:
    the place that wants it, and why."""
    losses = list[tuple[Place, str]]()
    where: Place = ("own",) if needs.short else ("steps",)
    modules = _modules(needs, files)
    if len(modules) > MAX_MODULES:
        words = f"{folder} has {len(modules)} modules; the lab reads {MAX_MODULES} at most"
        losses.append((where, words))
    if (size := sum(entry.size for entry in modules.values())) > MAX_CODE:
        words = f"the modules of {folder} have {size:,} bytes; {MAX_CODE:,} is the most"
        losses.append((where, words))
    try:
        files.lay(laid, () if losses else modules)
        files.mark(laid, () if losses else filter(code_digest.BINARY.search, files))  # by name
    except Unfit as error:
        losses.append((where, str(error)))

    @cache  # thousands of steps may name one file
    def why_not(names: tuple[str, ...]) -> str:
        folders = tuple(name for name in names if name.endswith("/"))
        try:
            files.lay(laid, [name for name in files if name in names or name.startswith(folders)])
        except Unfit as error:
            return str(error)
        return ""

    for names, place in needs.files:
        if words := why_not(tuple(names)):
            losses.append((place, words))
    return losses


def _modules(needs: Outline, files: Tree) -> dict[str, Entry]:
    """The experiment's own modules, if any of them runs."""
    if not needs.own and declaration.PYTHON_NAME not in files:
        return {}
    read = (".py", declaration.LOCK_NAME)
    return {name: entry for name, entry in files.items() if name.endswith(read)}


def _tree_id(files: Tree) -> str:
    return git_source.tree_id({name: (file.mode, file.sha) for name, file in files.items()})


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
