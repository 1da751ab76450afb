"""Which code a function reaches, and what of it counts."""

import importlib
import sys
from pathlib import Path

import pytest

from runner.closure import BadCode, defined, reach


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab of three packages, of which an experiment uses some."""
    root = tmp_path / "lab"
    for name, text in {
        "engine/__init__.py": "",
        "engine/model.py": "from engine import loss\n",
        "engine/loss.py": "import math\n\n\ndef loss():\n    return math.pi\n",
        "engine/other.py": "import engine.model\n",
        "runner/__init__.py": "",
        "runner/late.py": "def f():\n    from engine.model import x\n    return x\n",
        "other/secret.py": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment"
    (folder / "parts").mkdir(parents=True)
    return folder


def names(folder: Path, lab: Path, text: str, others: dict[str, str] | None = None) -> list[str]:
    for name, content in {"main.py": text, **(others or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return list(reach("main", folder, lab))


def test_imports_are_followed_into_the_lab_and_no_further(folder: Path, lab: Path) -> None:
    found = names(folder, lab, "import json\nimport other.secret\nfrom engine import model\n")
    assert found == [
        "lab:engine/__init__.py",
        "lab:engine/loss.py",
        "lab:engine/model.py",
        "main.py",
    ]


def test_an_import_inside_of_a_function_counts(lab: Path) -> None:
    assert "lab:engine/loss.py" in reach("runner.late", None, lab)


def test_relative_imports_stay_in_their_package(folder: Path, lab: Path) -> None:
    found = names(
        folder,
        lab,
        "from parts import clean\n",
        {
            "parts/__init__.py": "",
            "parts/clean.py": "from .words import WORDS\nfrom . import more\n",
            "parts/words.py": "WORDS = 1\n",
            "parts/more.py": "",
            "parts/unused.py": "",
        },
    )
    assert found == [
        *("main.py", "parts/__init__.py", "parts/clean.py", "parts/more.py", "parts/words.py")
    ]


@pytest.mark.parametrize("name", ["json", "numpy", "engine"])
def test_an_own_module_with_the_name_of_a_library_is_refused(
    folder: Path, lab: Path, name: str
) -> None:
    text = f"import {name}\n" if name != "engine" else "from parts import engine\nimport x.engine\n"
    others = {f"{name}.py": ""} if name != "engine" else {"parts/engine.py": ""}
    if name == "engine":
        assert names(folder, lab, text, others) == ["main.py", "parts/engine.py"]
        with pytest.raises(BadCode, match=r"there is no module `engine`"):
            reach("engine", folder, lab / "nowhere")
        return
    with pytest.raises(BadCode, match=rf"`{name}\.py` has the name of the library `{name}`"):
        names(folder, lab, text, others)


@pytest.mark.parametrize(
    "file", ["bot.__main__.x.py", "bot.__main__/x.py", "parts/a.b.py", "a-b.py", "c d/e.py"]
)
def test_a_files_name_runs_nothing(
    folder: Path, lab: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "bot.__main__", raising=False)
    with pytest.raises(BadCode, match="cannot be the name of a module"):
        names(folder, lab, "from importlib import import_module\n", {file: ""})
    assert "bot.__main__" not in sys.modules


def test_to_import_the_labs_main_module_is_not_to_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "bot.__main__", raising=False)
    monkeypatch.setattr(sys, "argv", ["regatta", "--help"])
    importlib.import_module("bot.__main__")


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module('a')\n",
        "from importlib import import_module\n",
        "__import__('b')\n",
    ],
)
def test_where_an_import_is_dynamic_the_whole_folder_counts(
    folder: Path, lab: Path, text: str
) -> None:
    found = names(folder, lab, text, {"b.py": "", "parts/c.py": ""})
    shown = [f"engine/{name}.py" for name in ("__init__", "loss", "model", "other")]
    shown += ["runner/__init__.py", "runner/late.py"]
    assert found == ["b.py", *(f"lab:{name}" for name in shown), "main.py", "parts/c.py"]


def test_reading_a_packages_version_is_not_a_dynamic_import(folder: Path, lab: Path) -> None:
    text = "from importlib.metadata import version\n"
    assert names(folder, lab, text, {"b.py": ""}) == ["main.py"]


@pytest.mark.parametrize(
    ("edit", "counts"),
    [
        ("# words\ndef f():\n    return 1\n", False),
        ('"""Words."""\n\n\ndef f():\n    """More words."""\n    return 1  # one\n', False),
        ("def f(): return 1\n", False),
        ("def f():\n    return 2\n", True),
        ("def f():\n    return 1\n\n\nx = 3\n", True),
        ("def f():\n    return '# words'\n", True),
    ],
)
def test_of_the_labs_code_comments_docstrings_and_layout_do_not_count(
    folder: Path, lab: Path, edit: str, counts: bool
) -> None:
    own, labs = folder / "main.py", lab / "engine" / "loss.py"
    own.write_text("from engine import loss\n")
    labs.write_text("def f():\n    return 1\n")
    before = reach("main", folder, lab)
    labs.write_text(edit)
    assert (reach("main", folder, lab) != before) == counts
    own.write_text("from engine import loss  # words\n")
    labs.write_text("def f():\n    return 1\n")
    assert reach("main", folder, lab) != before, "and of an experiment's own, all of it does"


def test_code_that_cannot_be_read_is_named(folder: Path, lab: Path) -> None:
    with pytest.raises(BadCode, match="there is no module `main`"):
        reach("main", folder, lab)
    with pytest.raises(BadCode, match=r"broken\.py cannot be read as Python: "):
        names(folder, lab, "import broken\n", {"broken.py": "def (:\n"})


def test_what_a_module_defines_is_seen_without_running_it(folder: Path) -> None:
    text = "raise SystemExit\nfrom x import a as b\nimport c\nD = 1\nclass E: ...\ndef f(): ...\n"
    (folder / "main.py").write_text(text)
    assert {"b", "c", "D", "E", "f"} <= defined("main", folder)
    assert "a" not in defined("main", folder)
    assert not defined("missing", folder)
