"""Which code a function reaches, and what of it counts."""

import importlib
import sys
from pathlib import Path

import pytest

from runner.planning.code_digest import BadCode, defined, of_lab, reach


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment"
    (folder / "parts").mkdir(parents=True)
    return folder


def names(folder: Path, text: str, others: dict[str, str] | None = None) -> list[str]:
    for name, content in {"main.py": text, **(others or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return list(reach("main", folder))


def test_imports_are_followed_in_the_folder_and_no_further(folder: Path) -> None:
    text = (
        "import json\nimport other.secret\nfrom engine.model import decoder as model\n"
        "from runner.schema import step_graph as graph\n"
    )
    assert names(folder, text) == ["main.py"]
    assert of_lab(["main.py"], folder, folder) == {
        "engine.model.decoder",
        "runner.schema.step_graph",
    }


def test_relative_imports_stay_in_their_package(folder: Path) -> None:
    found = names(
        folder,
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
def test_an_own_module_with_the_name_of_a_library_is_refused(folder: Path, name: str) -> None:
    text = f"import {name}\n" if name != "engine" else "from parts import engine\nimport x.engine\n"
    others = {f"{name}.py": ""} if name != "engine" else {"parts/engine.py": ""}
    if name == "engine":
        assert names(folder, text, others) == ["main.py", "parts/engine.py"]
        with pytest.raises(BadCode, match=r"there is no module `engine`"):
            reach("engine", folder)
        return
    with pytest.raises(BadCode, match=rf"`{name}\.py` has the name of the library `{name}`"):
        names(folder, text, others)


@pytest.mark.parametrize(
    "file", ["bot.__main__.x.py", "bot.__main__/x.py", "parts/a.b.py", "a-b.py", "c d/e.py"]
)
def test_a_files_name_runs_nothing(
    folder: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "bot.__main__", raising=False)
    with pytest.raises(BadCode, match="cannot be the name of a module"):
        names(folder, "from importlib import import_module\n", {file: ""})
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
def test_a_dynamic_import_makes_the_whole_folder_count(folder: Path, text: str) -> None:
    found = names(folder, text, {"b.py": "", "parts/c.py": ""})
    assert found == ["b.py", "main.py", "parts/c.py"]


def test_reading_a_packages_version_is_not_a_dynamic_import(folder: Path) -> None:
    text = "from importlib.metadata import version\n"
    assert names(folder, text, {"b.py": ""}) == ["main.py"]


@pytest.mark.parametrize("edit", ["def f():\n    return 1  # words\n", "def f(): return 1\n"])
def test_own_files_count_by_all_their_bytes(folder: Path, edit: str) -> None:
    (folder / "main.py").write_text("def f():\n    return 1\n")
    before = reach("main", folder)
    (folder / "main.py").write_text(edit)
    assert reach("main", folder) != before


def test_code_that_cannot_be_read_is_named(folder: Path) -> None:
    with pytest.raises(BadCode, match="there is no module `main`"):
        reach("main", folder)
    with pytest.raises(BadCode, match=r"broken\.py cannot be read as Python: "):
        names(folder, "import broken\n", {"broken.py": "def (:\n"})


def test_a_modules_names_are_found_without_running_it(folder: Path) -> None:
    text = "raise SystemExit\nfrom x import a as b\nimport c\nD = 1\nclass E: ...\ndef f(): ...\n"
    (folder / "main.py").write_text(text)
    assert {"b", "c", "D", "E", "f"} <= defined("main", folder)
    assert "a" not in defined("main", folder)
    assert not defined("missing", folder)
