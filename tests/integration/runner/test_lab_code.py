"""Of `test_lab_code.py` what needs a process, a socket or a compilation."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.spec.step_types import place_of
from tests.unit.runner.test_lab_code import LAB

SHIPPED = ("warm-learning-rate", "wide-or-deep", "gated-attention")
PLAN = """
import json, sys
from pathlib import Path
from runner.planning import planner
plans = [planner.plan_folder(Path(folder)) for folder in sys.argv[1:]]
found = [[plan.fingerprint, *(x.fingerprint for x in plan.steps.values())] for plan in plans]
print(json.dumps([planner.__file__, found]))
"""


def planned(lab: Path) -> list[list[str]]:
    """The fingerprints of shipped experiments, as the code in `lab` plans them."""
    ended = subprocess.run(
        [sys.executable, "-c", PLAN, *(str(lab / "experiments" / name) for name in SHIPPED)],
        cwd=lab,
        env={**os.environ, "PYTHONPATH": str(lab)},
        capture_output=True,
        text=True,
        check=True,
    )
    file, found = json.loads(ended.stdout)
    assert Path(file).is_relative_to(lab)
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout to move files in."""
    for name in ("engine", "runner", "experiments"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(LAB / name, tmp_path / "lab" / name, ignore=ignore)
    return tmp_path / "lab"


def rewrite(lab: Path, *pairs: tuple[str, str]) -> None:
    for path in [*(lab / "engine").rglob("*.py"), *(lab / "runner").rglob("*.py")]:
        text = old = path.read_text()
        for pattern, new in pairs:
            text = re.sub(pattern, new, text)
        if text != old:
            path.write_text(text)


def module_of(name: str) -> Path:
    """The file in which a definition lies that is reached by a built-in step."""
    [found] = [
        path
        for path in [*(LAB / "engine").rglob("*.py"), *(LAB / "runner").rglob("*.py")]
        if re.search(rf"^(def|class) {name}\b", path.read_text(), re.MULTILINE)
    ]
    return found.relative_to(LAB)


def dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def test_files_that_move_change_no_fingerprint_and_a_line_in_them_does(copy: Path) -> None:
    """The loss, and the function that trains, which is known by a string too."""
    before = planned(copy)
    for name, new in (("cross_entropy", "engine/parts/losses.py"), ("train", "runner/made/by.py")):
        at = module_of(name) if name != "train" else Path(dotted_file(place_of("regatta.train")))
        target = copy / new
        target.parent.mkdir(exist_ok=True)
        (target.parent / "__init__.py").touch()
        (copy / at).rename(target)
        package, _, module = dotted(at).rpartition(".")
        into, _, called = dotted(Path(new)).rpartition(".")
        rewrite(
            copy,
            (
                rf"from {re.escape(package)} import {module}\b",
                f"from {into} import {called} as {module}",
            ),
            (rf"\b{re.escape(dotted(at))}\b", f"{into}.{called}"),
        )
    assert planned(copy) == before
    moved = copy / "engine/parts/losses.py"
    moved.write_text(moved.read_text().replace("targets_BS >= 0", "targets_BS > 0"))
    after = planned(copy)
    assert all(old != new for old, new in zip(before, after, strict=True))


def dotted_file(function: str) -> str:
    return function.partition(":")[0].replace(".", "/") + ".py"
