"""An experiment in Python says the same as one in YAML."""

import errno
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from runner.cli import main
from runner.lib.problems import BadExperiment
from runner.planning import lockfile, planner
from runner.schema.job_reports import AttemptSpec
from runner.spec import declaration
from runner.store.artifacts import MakingFailed
from runner.store.store import Store
from runner.worker import executor
from runner.worker import main as worker_main

HERE = Path(declaration.__file__).parents[2] / "experiments" / "wide-or-deep"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, declared in Python."""
    folder = tmp_path / "wide-or-deep"
    folder.mkdir()
    for name in ("prepare.py", "compare.py"):
        (folder / name).write_bytes((HERE / name).read_bytes())
    declared = yaml.safe_load((HERE / "experiment.yaml").read_text())
    (folder / "experiment.py").write_text(
        "from runner.api import Declaration, Step\n"
        f"declared = {declared!r}\n"
        "steps = {name: Step(**step) for name, step in declared.pop('steps').items()}\n"
        "experiment = Declaration(**declared, steps=steps)\n"
    )
    return folder


def test_python_compiles_to_the_same_fingerprints(folder: Path) -> None:
    answer = CliRunner().invoke(main.app, ["compile", str(folder)])
    assert answer.exit_code == 0, answer.output
    ours, theirs = (planner.plan_folder(one) for one in (folder, HERE))
    assert ours.fingerprint == theirs.fingerprint
    assert {name: step.fingerprint for name, step in ours.steps.items()} == {
        name: step.fingerprint for name, step in theirs.steps.items()
    }
    lockfile.check(folder)
    assert "unchanged" in CliRunner().invoke(main.app, ["compile", str(folder)]).output


def test_a_lock_that_is_missing_or_old_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadExperiment, match=r"lock\.yaml: it is missing; `regatta "):
        declaration.load(folder)
    answer = CliRunner().invoke(main.app, ["run", str(folder), "--store", str(tmp_path / "store")])
    assert (answer.exit_code, "is missing" in answer.output) == (2, True)
    (folder / declaration.LOCK_NAME).write_text(lockfile.compiled(folder))
    text = (folder / "experiment.py").read_text()
    (folder / "experiment.py").write_text(text.replace("8192", "4096"))
    for command in ("plan", "run"):
        asked = [command, str(folder), "--store", str(tmp_path / "store")]
        answer = CliRunner().invoke(main.app, asked)
        words = "it was not made from experiment.py and its imports as they are now; run `regatta "
        assert (answer.exit_code, words in answer.output) == (2, True)
    (folder / "experiment.py").write_text(text)
    planner.plan_folder(folder)
    made = (folder / declaration.LOCK_NAME).read_text().splitlines(keepends=True)
    (folder / declaration.LOCK_NAME).write_text("".join([made[0], *made[2:]]))
    with pytest.raises(BadExperiment, match="it does not say from which code it was made; run `"):
        planner.plan_folder(folder)
    (folder / declaration.FILE_NAME).write_text("")
    with pytest.raises(BadExperiment, match="only one of them can declare"):
        declaration.load(folder)


def test_an_edited_import_makes_the_lock_stale_and_step_code_does_not(
    folder: Path,
) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "sizes.py").write_text("BATCH = 8\n")
    text = (folder / "experiment.py").read_text()
    (folder / "experiment.py").write_text(f"from parts.sizes import BATCH\n{text}")
    (folder / declaration.LOCK_NAME).write_text(lockfile.compiled(folder))
    with (folder / "prepare.py").open("a") as module:
        module.write("MORE = 1\n")
    planner.plan_folder(folder)
    (folder / "parts" / "sizes.py").write_text("BATCH = 16\n")
    with pytest.raises(BadExperiment, match="not made from"):
        planner.plan_folder(folder)


def test_a_run_compiles_too_where_what_no_digest_sees_decides_what_is_declared(
    folder: Path, tmp_path: Path
) -> None:
    text = (folder / "experiment.py").read_text() + "experiment = experiment.model_copy("
    text += "update={'title': open(__file__.replace('experiment.py', 'title.txt')).read()})\n"
    (folder / "experiment.py").write_text(text)
    (folder / "title.txt").write_text("One title")
    (folder / declaration.LOCK_NAME).write_text(lockfile.compiled(folder))
    planner.plan_folder(folder)
    (folder / "title.txt").write_text("Another")
    asked = ["run", str(folder), "--store", str(tmp_path / "store")]
    answer = CliRunner().invoke(main.app, asked)
    assert answer.exit_code == 2
    assert "experiment.py says something else now; run `regatta compile" in answer.output


def test_the_job_compiles_again_and_stops_on_a_difference(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / declaration.LOCK_NAME).write_text(lockfile.compiled(folder))
    store = Store(tmp_path / "store")
    plan = planner.plan_folder(folder, store)
    asked: list[str] = []
    monkeypatch.setattr(executor, "run", lambda *_: asked.append("run"))
    job = AttemptSpec(attempt="x1.t1", nonce="0" * 16, plan=plan, isolation="own machine")
    worker_main._steps(store, job)
    assert asked == ["run"]
    old = store.local(planner.code_folder(plan)) / declaration.LOCK_NAME
    old.write_text("".join(old.read_text().partition("title:")[1:]))
    worker_main._steps(store, job)
    assert asked == ["run", "run"], "what an earlier lab has compiled is declared as it was"
    kept = store.local(planner.code_folder(plan)) / declaration.PYTHON_NAME
    kept.write_text(kept.read_text().replace("8192", "4096"))
    with pytest.raises(MakingFailed, match="says something else now"):
        worker_main._steps(store, job)
    assert asked == ["run", "run"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "it has no variable `experiment` that is a runner.api.Declaration"),
        ("raise ValueError('not today')", "ValueError: not today"),
        (
            "from runner.api import Declaration, Step\n"
            "step = Step(do='m:f', config={'month': '08'})\n"
            "experiment = Declaration(title='T', resources={'kind': 'cpu'}, steps={'a': step})",
            "a text that YAML would read as one",
        ),
    ],
)
def test_python_that_declares_nothing_is_said(folder: Path, text: str, words: str) -> None:
    (folder / "experiment.py").write_text(text)
    with pytest.raises(BadExperiment, match=words):
        lockfile.compiled(folder)


DECLARED = "experiment = Declaration(title='T', resources={'kind': 'cpu'}, steps="


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nraise ValueError('not\\ntoday\\x1b')",
         ["experiment.py, line 3: ValueError: not today\\x1b"]),
        ("import sys\nsys.exit(0)", ["experiment.py, line 3: SystemExit: 0"]),
        ("import os\nos._exit(0)", ["experiment.py, line 1: it ended without a report"]),
        ("import os\nos._exit(65)", ["experiment.py, line 1: it ended without a report"]),
        ("import os\nos.write(2, b'\\xff')\nos._exit(1)", ["experiment.py, line 1: \ufffd"]),
        ("import os\nos.system('echo hi')\nraise KeyError(3)",
         ["experiment.py, line 4: KeyError: 3"]),
        ("x = 1\ny = (", ["experiment.py, line 3: SyntaxError: '(' was never closed"]),
        ("import broken", ["broken.py, line 2: SyntaxError: invalid syntax"]),
        ("import deep\n\ndeep.down(3)", ["deep.py, line 2: ZeroDivisionError: division by zero"]),
        ("steps = {\n    'a': Step(doo='m:f', inputs={'X': 'a'}),\n}",
         ["experiment.py, line 3, `inputs.X`: `X` is not a name of an input; use a–z, 0–9 and `_`, "
          "a letter first",
          "experiment.py, line 3, `doo`: unknown key; did you mean `do`?"]),
        (DECLARED + "{'a': {'do': 3}})",
         ["experiment.py, line 2, `steps.a.do`: must be text, not `3`"]),
        ("from engine.config.schema import ModelConfig\n"
         "ModelConfig(hidden_dim='x', depth=1, seq_len=8)",
         ["experiment.py, line 3, `hidden_dim`: must be a whole number, not `x`"]),
        ("from pydantic import BaseModel\nclass Mine(BaseModel):\n  x: int\nMine(x='y')",
         ["experiment.py, line 5, `x`: Input should be a valid integer, unable to parse string as "
          "an integer"]),
        (DECLARED + "{'a': Step(do='m:f', config={'x': print})})",
         ["experiment.py, line 2: Unable to serialize unknown type: <class "
          "'builtin_function_or_method'>"]),
        (DECLARED + "{'a': Step(do='m:f', config={'day': {'of': '08'}})})",
         ["experiment.py, line 2, `steps.a.config.day.of`: no finite number, or a text that YAML "
          "would read as one; write it in another way"]),
        (DECLARED + "{'a': Step(do='m:f', config={'x': [float('inf')]})})",
         ["experiment.py, line 2, `steps.a.config.x`: no finite number, or a text that YAML would "
          "read as one; write it in another way"]),
        ("\n" + DECLARED + "{'a': Step(do='prepare:nothing')})\nprint(experiment)",
         ["experiment.py, line 3, `steps.a`: `FOLDER` has no `nothing` in a module `prepare`; "
          "define it there"]),
        (DECLARED + "{'a': Step(do='tokenize', config={'sourc': 'stdlib', 'tokenizer': 'x'})})",
         ["experiment.py, line 2, `steps.a.config.sourc`: unknown key; did you mean `source`?",
          "experiment.py, line 2, `steps.a.config.tokenizer`: must be `byte`, `bpe` or `given`, "
          "not `x`"]),
    ],
)  # fmt: skip
def test_a_failing_declaration_names_its_line_and_keeps_the_lock(
    folder: Path, text: str, said: list[str]
) -> None:
    (folder / declaration.LOCK_NAME).write_text("the good one")
    (folder / "broken.py").write_text("x = 1\ndef f(:\n")
    (folder / "deep.py").write_text("def down(n):\n    return down(n - 1) if n else 1 / 0\n")
    (folder / "experiment.py").write_text(f"from runner.api import Declaration, Step\n{text}\n")
    answer = CliRunner().invoke(main.app, ["compile", str(folder)])
    assert answer.exit_code == 2
    lines = [f"{folder}/{line}".replace("FOLDER", str(folder)) for line in said]
    assert answer.output.splitlines() == lines
    assert (folder / declaration.LOCK_NAME).read_text() == "the good one"


def test_a_lock_is_written_whole_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / declaration.LOCK_NAME).write_text("the good one")
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write(path, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    before = sorted(folder.iterdir())
    answer = CliRunner().invoke(main.app, ["compile", str(folder)])
    assert answer.exit_code == 2
    assert "experiment.lock.yaml was not written: No space left on device" in answer.output
    assert (folder / declaration.LOCK_NAME).read_text() == "the good one"
    assert sorted(folder.iterdir()) == before


def test_output_of_the_declaration_is_not_part_of_the_lock(folder: Path) -> None:
    quiet = lockfile.compiled(folder)
    python = folder / "experiment.py"
    python.write_text(python.read_text() + "\nimport os\nprint('a')\nos.system('echo \"# b\"')\n")
    loud = lockfile.compiled(folder)
    assert [line for line in loud.splitlines() if not line.startswith("# Its source")] == [
        line for line in quiet.splitlines() if not line.startswith("# Its source")
    ]


def test_beside_an_experiment_yaml_nothing_is_compiled(folder: Path) -> None:
    (folder / declaration.FILE_NAME).write_text("")
    answer = CliRunner().invoke(main.app, ["compile", str(folder)])
    assert (answer.exit_code, "only one of them can declare" in answer.output) == (2, True)
    assert not (folder / declaration.LOCK_NAME).exists()
