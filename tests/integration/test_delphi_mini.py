"""Of `test_delphi_mini.py` what needs a process, a socket or a compilation."""

import subprocess

import pytest

from runner.analysis.sealed_forecast import Seal
from tests.unit.test_delphi_mini import HUNDRED, ROOT, Rule, beside
from tests.unit.test_delphi_mini import rule as rule  # a fixture
from tests.unit.test_delphi_mini import seal as seal  # a fixture


def test_the_seals_commit_is_an_ancestor_of_the_outcomes(rule: Rule) -> None:
    place = f"experiments/{rule.folder.name}"
    seals, outcomes = commits(f"{place}/seal.json"), commits(f"{place}/outcome.json")
    if not seals or not outcomes:
        pytest.skip("there is no git history here, or no outcome in it, to tell the order from")
    assert len(seals) == 1, "the seal was changed after it was made"
    assert len(outcomes) == 1, "the outcome was changed after it was written"
    assert seals != outcomes
    done = git("merge-base", "--is-ancestor", seals[0], outcomes[0])
    assert done.returncode == 0
    with_seal = git("ls-tree", "--name-only", seals[0], f"{place}/").stdout
    assert "seal.json" in with_seal
    assert "outcome.json" not in with_seal
    declared = git("rev-parse", f"{seals[0]}:{place}/experiment.yaml").stdout
    blob = git("hash-object", f"{place}/experiment.yaml").stdout
    assert declared == blob, "the declaration is not the one that was committed with the seal"


def commits(path: str) -> list[str]:
    """Those that changed a file, newest first; none where history is cut off."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return []
    return git("log", "--format=%H", "--", path).stdout.split()


def git(*words: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))


def test_later_analyses_came_after_the_outcome_and_use_other_runs() -> None:
    seal = Seal.model_validate_json((HUNDRED.folder / "seal.json").read_bytes())
    for run in beside("afterwards.json").runs:
        assert run.model_flops < seal.design.model_flops
        _, sizes = HUNDRED.rung(int(run.arm.removeprefix("w")))
        assert run.num_train_steps == sizes["num_train_steps"]
    place = f"experiments/{HUNDRED.folder.name}"
    outcomes, afterwards = commits(f"{place}/outcome.json"), commits(f"{place}/afterwards.json")
    if not outcomes or not afterwards:
        pytest.skip("there is no git history here to tell the order from")
    assert outcomes[0] != afterwards[-1]
    assert git("merge-base", "--is-ancestor", outcomes[0], afterwards[-1]).returncode == 0
