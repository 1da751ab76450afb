"""Of `test_aliases.py` what needs a process, a socket or a compilation."""

from pathlib import Path

import pytest
import yaml

from runner.execution import aliases
from runner.planning import lockfile, planner
from runner.spec import declaration
from tests.pretended import DECLARED, declare
from tests.unit.runner.test_aliases import OTHER
from tests.unit.runner.test_aliases import ran as ran  # a fixture
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import local as local  # a fixture


def meanings(store: Path, folder: Path) -> list[str]:
    """The fingerprints that the alias had, oldest first."""
    where = store / "records" / "aliases" / folder.name / "small-2026-11"
    numbers = sorted(where.glob("*.json"))
    words = [aliases.Alias.model_validate_json(path.read_bytes()) for path in numbers]
    assert [word.n for word in words] == list(range(1, len(words) + 1))
    return [word.fingerprint for word in words]


def fingerprint(folder: Path) -> str:
    return planner.plan_folder(folder).steps["prepare"].fingerprint


def test_an_alias_means_what_it_first_began_with(
    ran: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = ran
    monkeypatch.setenv("COLUMNS", "120")
    assert meanings(store, folder) == [fingerprint(folder)]
    assert ask("run", folder, "--store", store).exit_code == 0
    assert meanings(store, folder) == [fingerprint(folder)]
    for command in (("plan", folder), ("graph", folder)):
        assert "as small-2026-11" in ask(*command, "--store", store).output


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
        assert "would change what `small-2026-11` means" in words
        assert "prepare documents 40 → 41" in words
        assert f"regatta alias {folder} small-2026-11" in words
    assert "Nothing was started." in run.output
    assert local.started == 1
    assert {path for path in store.rglob("*") if path.is_file()} - before == set()
    assert meanings(store, folder) != [fingerprint(folder)]


@pytest.mark.parametrize("way", ["taken back", "another alias", "its author's word"])
def test_the_author_confirms_a_new_meaning(ran: tuple[Path, Path], way: str) -> None:
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


def test_only_an_alias_that_is_there_can_be_decided(ran: tuple[Path, Path]) -> None:
    folder, store = ran
    answer = ask("alias", folder, "small-2026-12", "--store", store)
    assert answer.exit_code == 2
    assert "did you mean `small-2026-11`?" in answer.output


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
