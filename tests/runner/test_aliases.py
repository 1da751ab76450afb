"""Aliases: what they mean, and that no edit changes it without its author's word."""

from pathlib import Path

import pytest
import yaml

from runner.execution import aliases
from runner.lib.problems import BadExperiment
from runner.planning import lockfile, planner
from runner.spec import declaration
from runner.store.store import Store
from tests.pretended import DECLARED, declare, pretend
from tests.runner.test_cli import LocalStub, ask
from tests.runner.test_cli import local as local  # a fixture
from tests.synthetic import START

OTHER = DECLARED.replace("documents: 40", "documents: 41")


def meanings(store: Path, folder: Path) -> list[str]:
    """The fingerprints that the alias had, oldest first."""
    where = store / "records" / "aliases" / folder.name / "small-2026-11"
    numbers = sorted(where.glob("*.json"))
    words = [aliases.Alias.model_validate_json(path.read_bytes()) for path in numbers]
    assert [word.n for word in words] == list(range(1, len(words) + 1))
    return [word.fingerprint for word in words]


def fingerprint(folder: Path) -> str:
    return planner.plan_folder(folder).steps["prepare"].fingerprint


@pytest.fixture
def ran(tmp_path: Path, local: LocalStub) -> tuple[Path, Path]:
    """A folder and a store in which it has run."""
    folder, store = declare(tmp_path / "which"), tmp_path / "store"
    local.ray.make_steps = pretend()
    answer = ask("run", folder, "--store", store)
    assert answer.exit_code == 0, answer.output
    return folder, store


def test_an_alias_means_what_it_first_began_with(ran: tuple[Path, Path]) -> None:
    folder, store = ran
    assert meanings(store, folder) == [fingerprint(folder)]
    assert ask("run", folder, "--store", store).exit_code == 0
    assert meanings(store, folder) == [fingerprint(folder)]
    for command in (("plan", folder), ("graph", folder)):
        assert "as small-2026-11" in ask(*command, "--store", store).output.replace("\n", " ")


def test_an_alias_that_would_mean_something_else_stops_the_run(
    ran: tuple[Path, Path], local: LocalStub
) -> None:
    folder, store = ran
    before = {path for path in store.rglob("*") if path.is_file()}
    declare(folder, OTHER)
    planned, run = (ask(command, folder, "--store", store) for command in ("plan", "run"))
    assert (planned.exit_code, run.exit_code) == (0, 2)
    for said in (planned.output, run.output):
        words = " ".join(said.split())
        assert "`small-2026-11` has a meaning since" in words
        assert "prepare documents 40 → 41" in words
        assert f"regatta alias {folder} small-2026-11" in words
    assert "Nothing was started." in run.output
    assert local.started == 1
    assert {path for path in store.rglob("*") if path.is_file()} - before == set()
    assert meanings(store, folder) != [fingerprint(folder)]


@pytest.mark.parametrize("way", ["taken back", "another alias", "its author's word"])
def test_its_author_decides(ran: tuple[Path, Path], way: str) -> None:
    folder, store = ran
    first = fingerprint(folder)
    declare(folder, OTHER)
    if way == "taken back":
        declare(folder, DECLARED)
    elif way == "another alias":
        declare(folder, OTHER.replace("small-2026-11", "small-2026-12"))
    else:
        said = ask("alias", folder, "small-2026-11", "--store", store)
        assert (said.exit_code, "its meaning no. 2" in said.output) == (0, True)
        assert "no. 2" in ask("alias", folder, "small-2026-11", "--store", store).output
    assert ask("run", folder, "--store", store).exit_code == 0
    assert meanings(store, folder) == (
        [first, fingerprint(folder)] if way == "its author's word" else [first]
    )


def test_without_a_store_nothing_stops(tmp_path: Path) -> None:
    folder = declare(tmp_path / "which", OTHER)
    answer = ask("plan", folder, "--store", tmp_path / "store")
    assert (answer.exit_code, "has a meaning" in answer.output) == (0, False)
    assert not (tmp_path / "store").exists()


def test_only_an_alias_that_is_there_can_be_decided(ran: tuple[Path, Path]) -> None:
    folder, store = ran
    answer = ask("alias", folder, "small-2026-12", "--store", store)
    assert answer.exit_code == 2
    assert "did you mean `small-2026-11`?" in answer.output


def test_a_difference_is_told_from_its_cause_on_and_under_the_steps_present_name(
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


def test_the_lock_of_a_declaration_in_python_has_its_aliases(tmp_path: Path) -> None:
    folder = declare(tmp_path / "which")
    theirs = planner.plan_folder(folder)
    (folder / "experiment.yaml").unlink()
    (folder / "experiment.py").write_text(
        "from runner.api import Declaration, Step\n"
        f"declared = {yaml.safe_load(DECLARED)!r}\n"
        "first = declared['steps']['prepare']\n"
        "first['alias'] = first.pop('as')\n"
        "steps = {name: Step(**step) for name, step in declared.pop('steps').items()}\n"
        "experiment = Declaration(**declared, steps=steps)\n"
    )
    text = lockfile.compiled(folder)
    assert yaml.safe_load(text)["steps"]["prepare"]["as"] == "small-2026-11"
    (folder / declaration.LOCK_NAME).write_text(text)
    assert planner.plan_folder(folder).steps == theirs.steps


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
