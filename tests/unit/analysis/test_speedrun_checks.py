"""Before anything runs, honest entries of each kind pass, and each declaration that cheats is
caught by the check that is for it."""

from pathlib import Path

import pytest

from engine.data.lab_texts import read_text
from runner.analysis import speedrun_checks, speedrun_rows
from runner.analysis.speedrun_checks import CHECKS, Failed
from runner.planning import planner
from runner.schema.record import EnteredRun, Evaluated, Plan, Resources
from tests.cheats import entries
from tests.cheats import model as cheats
from tests.decided import decide, one_track

TEXT = read_text("lab-2026-11", None).validation_sha256
TRACK = one_track("tiny", 100.0, 4096, TEXT).replace(
    "spread: 0.01}", "spread: 0.01, seeds: 2, hardware: {kind: cpu}}"
)


def planned(root: Path, declared: str) -> Plan:
    decide(root, tracks=TRACK)
    folder = root / "entry"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(declared)
    (folder / "model.py").write_bytes(Path(cheats.__file__).read_bytes())
    return planner.plan_folder(folder)


@pytest.mark.parametrize("kind", entries.HONEST)
def test_an_honest_entry_of_each_kind_passes(tmp_path: Path, kind: str) -> None:
    assert speedrun_rows.refused(planned(tmp_path, entries.HONEST[kind])) == ()


@pytest.mark.parametrize("name", entries.CHEATS)
def test_a_declaration_that_cheats_is_caught_by_its_check(tmp_path: Path, name: str) -> None:
    declared, check = entries.CHEATS[name]
    assert check in {one.check for one in speedrun_rows.refused(planned(tmp_path, declared))}
    assert check in CHECKS


def run(seed: int, bpb: float, params: str, *, own: bool = True) -> EnteredRun:
    evaluated = Evaluated(bpb=bpb, loss=1.0, targets=9, params_sha256=params * 64)
    return EnteredRun(
        arm="main",
        seed=seed,
        own=own,
        own_model=False,
        isolated=True,
        evaluated=evaluated,
        resources=Resources(kind="cpu"),
        tokens=9,
        parameters=9,
        model_flops=9,
        seconds=1.0,
        hardware_flops=9.0,
    )


def test_seeds_that_give_one_model_are_one_run() -> None:
    assert speedrun_checks.of_runs([run(0, 2.0, "a"), run(1, 2.1, "b")]) is None
    same = {"the same model": run(1, 2.1, "a"), "exactly the same score": run(1, 2.0, "b")}
    for what, other in same.items():
        words = f"seeds 0 and 1 gave {what}, so that they are one run"
        assert speedrun_checks.of_runs([run(0, 2.0, "a"), other]) == Failed(words, "seeds")
