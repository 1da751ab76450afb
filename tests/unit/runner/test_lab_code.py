"""What of the lab's code a step reaches: definitions, wherever they lie."""

import shutil
from pathlib import Path

import pytest

from runner.lib import lab_code, paths
from runner.lib.lab_code import reached
from runner.spec.step_types import BUILT_IN, logical, parts_of, place_of

LAB = Path(paths.LAB)


def test_every_built_in_has_a_name_of_its_own_and_all_its_functions_are_there() -> None:
    for do in BUILT_IN:
        assert logical(do) == f"regatta.{do}"
        assert place_of(logical(do)) == BUILT_IN[do].function
        for function in parts_of(logical(do)):
            assert function.rpartition(".")[2] in reached([function], LAB)
    assert logical("model:f") == place_of("model:f") == "model:f"
    assert parts_of("model:f") == ()


def test_no_built_in_reaches_what_imports_by_a_computed_name() -> None:
    names = [name for do in BUILT_IN for name in parts_of(logical(do))]
    assert lab_code.DYNAMIC.isdisjoint(reached(names, LAB))
    assert len(reached(names, LAB)) < 1350


def test_what_judges_solutions_counts_in_a_benchmark_and_how_a_box_is_made_does_not() -> None:
    found = reached(parts_of("regatta.benchmark"), LAB)
    assert {"examined", "encode", "decode", "SECONDS", "LIMITS"} <= found.keys()
    assert {"Box", "probe", "CannotIsolate"}.isdisjoint(found)


# ── What counts ──────────────────────────────────────────────────────────────────────────────

MODULES = {
    "engine/__init__.py": "",
    "engine/a.py": "import math as m\nfrom engine import b\nfrom engine.b import g as h\n\n\n"
    "def f(x, b2=1):\n    return b.g(x) + h(x) + m.pi + ONE\n\n\nONE = 1\nTWO = 2\n",
    "engine/b.py": "def g(x):\n    return _g(x)\n\n\n"
    "def _g(x):\n    return x\n\n\ndef k():\n    pass\n",
}


def lab_of(root: Path, modules: dict[str, str]) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    for name, text in modules.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("name", "old", "new", "counts"),
    [
        ("engine/a.py", "def f(", "# words\ndef f(", False),
        ("engine/a.py", "    return b.g", '    """Words."""\n    return b.g', False),
        ("engine/a.py", "TWO = 2", "TWO = 3", False),
        ("engine/b.py", "    pass", "    return 1", False),
        ("engine/a.py", "from engine import b\n", "import engine.b as b\n", False),
        ("engine/a.py", "import g as h", "import g as h, k", False),
        ("engine/a.py", "import math as m", "import math\nm = math", True),
        ("engine/a.py", "import math as m", "import cmath as m", True),
        ("engine/a.py", "ONE = 1", "ONE = 2", True),
        ("engine/a.py", "h(x)", "h(2)", True),
        ("engine/a.py", "TWO = 2", "f.x = 2", True),
        ("engine/a.py", "TWO = 2", "print()", True),
        ("engine/b.py", "return x", "return x + 1", True),
        ("engine/b.py", "return _g(x)", "from engine.c import _g\n    return _g(x)", True),
    ],
)
def test_a_definition_counts_with_all_that_it_reaches_and_nothing_else(
    tmp_path: Path, name: str, old: str, new: str, counts: bool
) -> None:
    before = reached(["engine.a.f"], lab_of(tmp_path / "one", MODULES))
    assert set(before) == {"f", "g", "_g", "ONE"}
    assert old in MODULES[name]
    others = {"engine/c.py": "def _g(x):\n    return 7\n"}
    edited = MODULES | others | {name: MODULES[name].replace(old, new)}
    assert (reached(["engine.a.f"], lab_of(tmp_path / "two", edited)) != before) == counts


def test_a_module_may_be_split_renamed_and_imported_in_another_way(tmp_path: Path) -> None:
    before = reached(["engine.a.f"], lab_of(tmp_path / "one", MODULES))
    split = {
        "engine/__init__.py": "",
        "engine/x/__init__.py": "from engine.x.y import f as f\n",
        "engine/x/y.py": "import math\nfrom .z import g\nimport engine.n\n\n\n"
        "def f(x, b2=1):\n    return g(x) + engine.x.z.g(x) + math.pi + engine.n.ONE\n",
        "engine/x/z.py": "def g(x):\n    from engine.n import _g\n\n    return _g(x)\n",
        "engine/n.py": "def _g(x):\n    return x\n\n\nONE = 1\n",
    }
    found = reached(["engine.x.f"], lab_of(tmp_path / "two", split))
    assert found.keys() == before.keys()
    assert found["f"] == before["f"]


def test_two_definitions_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """To swap what two callers call is a change, though the same four definitions are there."""
    modules = {
        "engine/a.py": "from engine.c import h\n\n\ndef f():\n    return h() + g()\n\n\n"
        "def g():\n    return _x()\n\n\ndef _x():\n    return 1\n",
        "engine/c.py": "def h():\n    return _x()\n\n\ndef _x():\n    return 2\n",
    }
    swapped = {name: text.translate({49: "2", 50: "1"}) for name, text in modules.items()}
    one = reached(["engine.a.f"], lab_of(tmp_path / "one", modules))
    other = reached(["engine.a.f"], lab_of(tmp_path / "two", swapped))
    assert one["_x"] == other["_x"]
    assert one != other


def test_a_variable_hides_what_a_module_has(tmp_path: Path) -> None:
    text = (
        "from engine import b\n\n\ndef f(b):\n    return b.g\n\n\n"
        "class C:\n    b: int = 1\n\n    def of(self):\n        return b.g\n"
    )
    lab = lab_of(tmp_path, MODULES | {"engine/a.py": text})
    assert set(reached(["engine.a.f"], lab)) == {"f"}
    assert set(reached(["engine.a.C"], lab)) == {"C", "g", "_g"}


def test_names_in_quoted_annotations_count(tmp_path: Path) -> None:
    text = 'from engine import b\n\n\ndef f(x: "list[b.k]") -> "Literal[\'b\']":\n    return x\n'
    assert set(reached(["engine.a.f"], lab_of(tmp_path, MODULES | {"engine/a.py": text}))) == {
        "f",
        "k",
    }


@pytest.mark.parametrize("name", ["engine", "engine.x"])
def test_a_package_that_is_imported_is_all_of_its_modules(tmp_path: Path, name: str) -> None:
    """`import engine.x`, and then `engine.x.y.f`, which somebody else has imported."""
    modules = {"engine/__init__.py": "", "engine/x/__init__.py": "", "engine/x/y.py": "F = 1\n"}
    assert set(reached([name], lab_of(tmp_path, modules))) == {"F"}


def test_after_a_dynamic_import_all_lab_code_counts(tmp_path: Path) -> None:
    text = "import importlib\n\n\ndef f(x):\n    return importlib.import_module(x)\n"
    lab = lab_of(tmp_path, MODULES | {"engine/a.py": text})
    assert set(reached(["engine.a.f"], lab)) == {"f", "g", "_g", "k"}


def test_a_definition_that_is_edited_is_read_again(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, MODULES)
    before = reached(["engine.a.f"], lab)
    path = lab / "engine/b.py"
    path.write_text(MODULES["engine/b.py"].replace("return x", "return -x"))
    assert reached(["engine.a.f"], lab) != before


def test_the_public_module_used_as_a_whole_is_all_that_it_offers() -> None:
    whole = lab_code.reached(["engine.api"], LAB)
    assert lab_code.reached(["engine.api.Decoder"], LAB).keys() <= whole.keys()
