"""Aliases: what they mean, and that no edit changes it without its author's word."""

from pathlib import Path

import pytest

from runner.execution import aliases
from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.spec import declaration
from runner.store.store import Store
from tests.pretended import DECLARED, declare, pretend
from tests.synthetic import START
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import local as local  # a fixture

OTHER = DECLARED.replace("documents: 40", "documents: 41")


@pytest.fixture
def ran(tmp_path: Path, local: LocalStub) -> tuple[Path, Path]:
    """A folder and a store in which it has run."""
    folder, store = declare(tmp_path / "which"), tmp_path / "store"
    local.ray.make_steps = pretend()
    answer = ask("run", folder, "--store", store)
    assert answer.exit_code == 0, answer.output
    return folder, store


def test_without_a_store_no_alias_stops_a_plan(tmp_path: Path) -> None:
    folder = declare(tmp_path / "which", OTHER)
    answer = ask("plan", folder, "--store", tmp_path / "store")
    assert (answer.exit_code, "would change what" in answer.output) == (0, False)
    assert not (tmp_path / "store").exists()


def test_a_drift_lists_causes_first_by_present_step_names(
    tmp_path: Path,
) -> None:
    declared = DECLARED.replace("as: small-2026-11, ", "").replace(
        "do: tokenize", "do: tokenize, as: tokens-1"
    )
    store, folder = Store(tmp_path / "store"), declare(tmp_path / "which", declared)
    plan = planner.plan_folder(folder)
    aliases.settle(store, plan, "x1", START)
    aliases.settle(store, plan, "x2", START)
    known = aliases.known(store, plan)
    assert known["tokens-1"].execution == "x1"
    assert aliases.drifted(known, plan.steps) == []
    renamed = declared.replace("tokens: {do", "words: {do").replace(
        "tokens: tokens", "tokens: words"
    )
    assert aliases.drifted(known, planner.plan_folder(declare(folder, renamed)).steps) == []
    declare(folder, renamed.replace("documents: 40", "documents: 41"))
    [drift] = aliases.drifted(known, planner.plan_folder(folder).steps)
    assert drift.step == "words"
    assert drift.why == (
        ("prepare", "documents 40 → 41"),
        ("words", "input text: prepare changed"),
    )


def test_an_alias_is_in_no_fingerprint(tmp_path: Path) -> None:
    folder = declare(tmp_path / "which")
    named = planner.plan_folder(folder)
    plain = planner.plan_folder(declare(folder, DECLARED.replace("as: small-2026-11, ", "")))
    assert named.steps["prepare"].alias == "small-2026-11"
    assert named.fingerprint == plain.fingerprint
    assert named.steps["prepare"].fingerprint == plain.steps["prepare"].fingerprint


@pytest.mark.parametrize(
    ("steps", "line", "field", "words"),
    [
        ("  a: {do: m:f, as: Fine Web}\n", 4, "steps.a.as", "write one such as fineweb-2026-11"),
        ("  a: {do: m:f, as: ../up}\n", 4, "steps.a.as", "a letter or digit first"),
        ("  a: {do: m:f, as: 12}\n", 4, "steps.a.as", "must be text"),
        ("  a: {do: m:f, alias: x}\n", 4, "steps.a.alias", "unknown key"),
        ("  a: {do: m:f, ass: x}\n", 4, "steps.a.ass", "did you mean `as`?"),
        ("  a: {do: m:f, as: x}\n  b: {do: m:f, as: x}\n", 5, "steps.b.as",
         "is the alias of `a` already"),
        ("  a:\n    do: m:f\n    as: x\n    sweep: {seed: [0, 1]}\n", 6, "steps.a.as",
         "this sweep makes 2"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_is_said_with_its_line(
    steps: str, line: int, field: str, words: str
) -> None:
    with pytest.raises(BadExperiment) as it:
        declaration.parse(f"title: T\nresources: {{kind: cpu}}\nsteps:\n{steps}", "experiment.yaml")
    [problem] = it.value.problems
    assert (problem.line, problem.field) == (line, field)
    assert words in problem.message


def test_a_sweep_of_one_point_may_have_an_alias() -> None:
    text = "title: T\nresources: {kind: cpu}\nsteps: {a: {do: m:f, as: x, sweep: {seed: [0]}}}"
    assert declaration.parse(text, "experiment.yaml").nodes["a/seed=0"].alias == "x"
