"""Of `test_same_fingerprint.py` what needs a process, a socket or a compilation."""

import importlib.util
import json
import py_compile
from pathlib import Path

import pytest

from runner.isolation import bubblewrap
from runner.lib.problems import BadExperiment
from runner.planning import lockfile, planner
from runner.schema import step_graph
from runner.spec import declaration
from runner.store.artifacts import Made
from runner.store.store import Store
from runner.worker import executor
from tests.unit.runner.test_same_fingerprint import BESIDE, HEAD, STEP, folder_with

TRAPS = Path(__file__).parents[2] / "traps"

isolating = pytest.mark.skipif(
    bool(bubblewrap.probe()),
    reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
)


@pytest.mark.parametrize("isolation", [pytest.param("bubblewrap", marks=isolating), "trusted"])
def test_a_step_is_shown_the_files_that_count_and_no_others(tmp_path: Path, isolation: str) -> None:
    """Those of other steps, which lie in the same plan, it could read without counting them."""
    declared = HEAD + "  b: {do: 'other:step'}\n"
    made = []
    for words in ("first", "second"):
        trap = (TRAPS / "beside" / "own.py").read_text()
        folder = folder_with(tmp_path, declared, own=trap, other=f"said = list\n{STEP}# {words}\n")
        store = Store(tmp_path / words)
        made.append(_made(store, folder, isolation))
    first, second = (json.loads((one.folder / "reached.json").read_text()) for one in made)
    assert first == second == ["own.py"]
    assert made[0].manifest.fingerprint == made[1].manifest.fingerprint
    if isolation == "bubblewrap":
        assert made[0].manifest.files == made[1].manifest.files, "nor does its place tell of them"


def _made(store: Store, folder: Path, isolation: str) -> Made:
    plan = planner.plan_folder(folder, store)
    code = store.local(planner.code_folder(plan))
    terms = executor.Terms(isolation, bubblewrap.Limits(memory=1 << 30, seconds=30))  # type: ignore[arg-type]
    names = step_graph.order({name: step.needs for name, step in plan.steps.items()})
    made = {
        x: executor.make(store, x, plan.steps, plan.kinds, code, "x1", terms=terms) for x in names
    }
    assert not [*made["a"].folder.parent.glob("*.scratch/own")], "and nothing of them is left"
    return made["a"]


# ── The lock ──

PYTHON = (
    '"""A title."""\nfrom runner.api import Declaration, Step\n'
    "from sizes import SIZE\n"
    "experiment = Declaration(title=__doc__, resources={'kind': 'cpu'}, "
    "steps={'a': Step(do='own:step', config={'size': SIZE})})\n"
)


def locked(tmp_path: Path, **modules: str) -> Path:
    folder = folder_with(tmp_path, **{"experiment": PYTHON, "own": STEP, **modules})
    (folder / declaration.FILE_NAME).unlink()
    (folder / declaration.LOCK_NAME).write_text(lockfile.compiled(folder))
    planner.plan_folder(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("experiment", "A title", "Another"),
        ("sizes", "SIZE = 1", "SIZE = 1  # one"),
        ("beside", "WORD = 1", "WORD = 2"),
    ],
)
def test_a_lock_names_the_bytes_of_all_that_declares(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    sizes = "import importlib\nSIZE = 1\ngetattr(importlib, 'import_module')('beside')\n"
    folder = locked(tmp_path, sizes=sizes, beside=BESIDE)
    text = (folder / f"{name}.py").read_text()
    assert old in text
    (folder / f"{name}.py").write_text(text.replace(old, new))
    with pytest.raises(BadExperiment, match="not made from"):
        planner.plan_folder(folder)


def test_pythons_own_caches_are_neither_read_nor_left_where_a_declaration_is_compiled(
    tmp_path: Path,
) -> None:
    folder = folder_with(tmp_path, experiment=PYTHON, own=STEP, sizes="SIZE = 666\n")
    (folder / declaration.FILE_NAME).unlink()
    cached = importlib.util.cache_from_source(str(folder / "sizes.py"))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(folder / "sizes.py"), invalidation_mode=mode)
    (folder / "sizes.py").write_text("SIZE = 1\n")
    assert "size: 1\n" in lockfile.compiled(folder)
    Path(cached).unlink()
    lockfile.compiled(folder)
    assert not [*folder.rglob("*.pyc")]
