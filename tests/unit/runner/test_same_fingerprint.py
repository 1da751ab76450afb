"""Of equal fingerprints the results are equal: what own code can read of its folder is what counts,
whichever way it reads it."""

import shutil
from pathlib import Path

import pytest

from runner.lib import paths
from runner.lib.problems import BadExperiment
from runner.planning import code_digest, planner

HEAD = "title: A trick\nresources: {kind: cpu}\nsteps:\n  a: {do: 'own:step'}\n"
STEP = "def step(config, inputs, out):\n    (out / 'x').write_text(repr(said()))\n"
BESIDE = "WORD = 1\n"
WORDS = '"""Words."""\n'


def folder_with(tmp_path: Path, declared: str = HEAD, **modules: str) -> Path:
    folder = tmp_path / "tricks"
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(declared)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def fingerprint(folder: Path, lab: Path = paths.LAB, step: str = "a") -> str:
    return planner.plan_folder(folder, lab=lab).steps[step].fingerprint


# ── Its own text ──


@pytest.mark.parametrize(
    "said",
    [
        "def said():\n    return __doc__\n",
        "import sys\n\ndef said():\n    return sys._getframe().f_lineno\n",
        "import inspect\n\ndef said():\n    return inspect.getsource(said)\n",
        "def said():\n    return open(__file__).read()\n",
        "from pathlib import Path\n\ndef said():\n    return Path(__file__).stat().st_size\n",
    ],
)
def test_own_code_that_reads_its_source_counts_by_bytes(tmp_path: Path, said: str) -> None:
    before = fingerprint(folder_with(tmp_path, own=f"{WORDS}{said}{STEP}"))
    after = fingerprint(folder_with(tmp_path, own=f'"""Other words."""\n\n{said}{STEP}'))
    assert before != after
    assert fingerprint(folder_with(tmp_path, own=f"{WORDS}# why\n{said}{STEP}")) != before


# ── What it loads ──

LOADS = {
    "getattr": "import importlib\nload = getattr(importlib, 'import_' + 'module')\n"
    "def said():\n    return load('beside').WORD\n",
    "an alias": "import importlib as i\nload = vars(i)['import_module']\n"
    "def said():\n    return load('beside').WORD\n",
    "from": "from importlib import *\ndef said():\n    return import_module('beside').WORD\n",
    "util": "import importlib.util as u\nsaid = lambda: u.find_spec('beside').origin\n",
    "exec": "def said():\n    exec('import beside as b', it := {})\n    return it['b'].WORD\n",
    "eval": "def said():\n    return eval('__imp' + 'ort__')('beside').WORD\n",
    "compile": "def said():\n    return compile('import beside', '', 'exec')\n",
    "builtins": "import builtins\ndef said():\n    return getattr(builtins, '__imp' + 'ort__')\n",
    "__builtins__": "def said():\n    return __builtins__['__imp' + 'ort__']('beside').WORD\n",
    "runpy": "import runpy\ndef said():\n    return runpy.run_module('beside')['WORD']\n",
    "pkgutil": "import pkgutil\ndef said():\n    return pkgutil.resolve_name('beside:WORD')\n",
    "a loader": "def said():\n    return __loader__.load_module('beside').WORD\n",
    "a spec": "def said():\n    return type(__spec__.loader)('b', 'beside.py')\n",
    "pickle": "import pickle\ndef said():\n    return pickle.loads(b'cbeside\\nWORD\\n.')\n",
    "marshal": "from marshal import loads\ndef said():\n    return loads\n",
    "ctypes": "import ctypes\ndef said():\n    return ctypes.PyDLL(None)\n",
    "sys.modules": "import sys\ndef said():\n    return sys.modules\n",
    "from sys": "from sys import meta_path\ndef said():\n    return meta_path\n",
    "sys.path": "import sys\nsys.path.append('parts')\nimport far\nsaid = lambda: far.WORD\n",
}


@pytest.mark.parametrize("how", LOADS)
def test_code_loaded_without_import_makes_the_whole_folder_count(tmp_path: Path, how: str) -> None:
    folder = folder_with(tmp_path, own=LOADS[how] + STEP, beside=BESIDE)
    (folder / "parts").mkdir()
    (folder / "parts" / "far.py").write_text(BESIDE)
    found = {fingerprint(folder)}
    for name in ("beside.py", "parts/far.py"):
        (folder / name).write_text("WORD = 2\n")
        found.add(fingerprint(folder))
    (folder / "parts" / "new.py").write_text(BESIDE)
    found.add(fingerprint(folder))
    assert len(found) == 4


def test_code_loaded_without_import_makes_all_lab_code_count(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    for name in ("engine/__init__.py", "engine/deep/far.py", "runner/some.py", "bot/some.py"):
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).write_text("x = 1\n")
    folder = folder_with(tmp_path, own=LOADS["getattr"] + STEP)
    before = fingerprint(folder, lab)
    (lab / "engine/deep/far.py").write_text("x = 1  # words\n")
    (lab / "bot/some.py").write_text("x = 2\n")
    assert fingerprint(folder, lab) == before, "of the lab's, comments do not count"
    (lab / "engine/deep/far.py").write_text("x = 2\n")
    assert fingerprint(folder, lab) != before


# What leads from an object that own code has to code that it has not imported.
REFLECTS = {
    "a function's globals": "said = lambda: near.__globals__['far']\n",
    "by getattr": "said = lambda: getattr(near, '__glo' + 'bals__')['far']\n",
    "by a literal name": "said = lambda: getattr(near, '__globals__')['far']\n",
    "getattr as a value": "get = getattr\nsaid = lambda: get(near, '__glo' + 'bals__')['far']\n",
    "getattr, mapped": "said = lambda: list(map(getattr, [near], ['__globals' + '__']))\n",
    "a method's object": "said = lambda: print.__self__\n",
    "all classes": "said = lambda: object.__subclasses__()\n",
    "vars": "said = lambda: vars(near)\n",
    "globals": "said = lambda: globals()['near']\n",
    "locals": "it = locals()\nsaid = lambda: it\n",
    "a dictionary": "said = lambda: near.__dict__\n",
    "code": "said = lambda: near.__code__.co_consts\n",
    "a closure": "said = lambda: near.__closure__\n",
    "a cell": "said = lambda c: c.cell_contents\n",
    "the collector": "import gc\nsaid = lambda: gc.get_referents(near)\n",
    "from the collector": "from gc import get_objects as objects\nsaid = objects\n",
    "a pattern": "def said():\n    match near:\n        case object(__globals__=it):\n"
    "            return it['far']\n",
    "a format": "said = lambda: '{0.__globals__[far]}'.format(near)\n",
    "a formatter": "import string as s\nsaid = lambda: s.Formatter().get_field('0.x', near, {})\n",
    "operator": "from operator import attrgetter\nsaid = lambda: attrgetter('__glo' + 'bals__')\n",
    "object": "said = lambda: object.__getattribute__(near, '__glo' + 'bals__')\n",
    "a frame": "def said():\n    try:\n        near(1, 2)\n    except TypeError as e:\n"
    "        return e.__traceback__.tb_frame\n",
    "a generator": "said = lambda: (x for x in [1]).gi_frame.f_globals\n",
    "hints": "import typing\nsaid = lambda: typing.get_type_hints(near)\n",
    "a mock": "from unittest import mock\nsaid = lambda: mock.patch('engine.far.far')\n",
    "an entry point": "from importlib.metadata import EntryPoint\n"
    "said = lambda: EntryPoint('x', 'engine.far:far', 'g').load()\n",
    "a log's configuration": "import logging.config as c\nsaid = lambda: c.dictConfig({})\n",
    "an array of objects": "import numpy as np\nsaid = lambda: np.load('x', allow_pickle=True)\n",
    "another Python": "import subprocess as s\nsaid = lambda: s.run(['python3', '-c', ''])\n",
    "a shell": "import os\nsaid = lambda: os.system('python3')\n",
    "a program": "from os import execv\nsaid = lambda: execv('python3', ['-c'])\n",
    "a chain of modules": "from engine import some\nsaid = lambda: some.further.far.far()\n",
}
LAB_FILES = {
    "engine/__init__.py": "",
    "engine/near.py": "from engine.far import far\ndef near():\n    return 1\n",
    "engine/some.py": "from engine import further\ndef one():\n    return 1\n",
    "engine/further.py": "from engine import far\n",
    "engine/far.py": "def far():\n    return 1\n",
    "runner/__init__.py": "",
}


@pytest.mark.parametrize("how", [*REFLECTS, "nothing of it"])
def test_lab_code_that_is_reached_by_reflection_counts(tmp_path: Path, how: str) -> None:
    lab = tmp_path / "lab"
    for name, text in LAB_FILES.items():
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).write_text(text)
    ordinary = "said = lambda: near() + len(str(near.__name__)) + hasattr(near, 'x')\n"
    own = "from engine.near import near\n" + REFLECTS.get(how, ordinary) + STEP
    before = fingerprint(folder_with(tmp_path, own=own), lab)
    (lab / "engine/far.py").write_text("def far():\n    return 2\n")
    assert (fingerprint(tmp_path / "tricks", lab) != before) == (how in REFLECTS)


def test_a_trap_that_reaches_what_it_has_not_imported_counts_with_it(tmp_path: Path) -> None:
    lab, name = tmp_path / "lab", "runner/lib/untrusted_files.py"
    shutil.copytree(paths.LAB / "runner/lib", lab / "runner/lib")
    (lab / "engine").mkdir()
    trap = (paths.LAB / "tests/traps/reflects/own.py").read_text()
    before = fingerprint(folder_with(tmp_path, own=trap), lab)
    text = (lab / name).read_text()
    (lab / name).write_text(text.replace('rpartition("/work/")', 'rpartition("/other/")'))
    assert fingerprint(tmp_path / "tricks", lab) != before


def test_of_the_shipped_experiments_own_code_only_one_runs_commands() -> None:
    """All others count by what they import, so that an edit elsewhere makes none of them again."""
    files = [*(paths.LAB / "experiments").glob("*/*.py")]
    assert len(files) > 10
    whole = {path.parent.name for path in files if code_digest._module(path).any_way}
    assert whole == {"traces-by-label"}


@pytest.mark.parametrize(
    "static",
    [
        "from importlib.metadata import version\nsaid = version\n",
        "import re\nsaid = re.compile('a').match\n",
        "import os.path\nsaid = os.path.exists\n",
        "import json\nsaid = getattr(json, 'loads')\n",
        "code, spec, path = 1, 2, 3\nsaid = [].append\n",
    ],
)
def test_ordinary_code_leaves_alone_what_it_does_not_import(tmp_path: Path, static: str) -> None:
    before = fingerprint(folder_with(tmp_path, own=static + STEP, beside=BESIDE))
    assert fingerprint(folder_with(tmp_path, beside="WORD = 2\n")) == before


# ── What lies beside it ──


@pytest.mark.parametrize(
    "name",
    ["beside.so", "beside.cpython-311-x86_64-linux-gnu.so", "beside.pyd", "beside.pyc", "lib.dll",
     "lib.dylib", "lib.so.1", "parts.zip", "parts.egg", "parts.whl", "UPPER.SO"],
)  # fmt: skip
def test_a_binary_beside_own_code_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    folder = folder_with(tmp_path, own="import beside\nsaid = beside.said\n" + STEP)
    (folder / name).write_bytes(b"\x7fELF")
    with pytest.raises(BadExperiment) as it:
        planner.plan_folder(folder)
    [problem] = it.value.problems
    assert f"`{name}`" in problem.message
    assert "cannot be read as Python's source" in problem.message


def test_a_binary_is_nobodys_business_where_no_own_code_is(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, own=STEP)
    (folder / "data").mkdir()
    (folder / "data" / "words.zip").write_bytes(b"PK")
    assert fingerprint(folder)
    declared = HEAD.replace("'own:step'", "tokenize, config: {source: stdlib}")
    (folder_with(tmp_path, declared) / "lib.so").write_bytes(b"")
    assert fingerprint(folder)
