"""The own code that a function can reach: its module and everything that this imports in the
experiment's folder. Files are read and not imported, so the effect of an edit is known before
anything runs. Imports count at any depth, also inside functions. `runner.lib.lab_code` finds the
reachable code of the lab.

A file counts by its bytes, because code can read its own source. Own code sees only the files that
count (`runner.planning.own_code_folder`), so a file that was not found here is missing there, and
the code fails. If it can load or reach code without an import (`ANY_WAY`), all Python files of its
folder count, and all of the lab's that a job runs. Libraries and Python itself do not count: their
versions are in receipts.
"""

import ast
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from runner.lib import lab_code
from runner.lib.lab_code import DYNAMIC
from runner.lib.paths import ROOMS, SHOWN
from runner.lib.unchanged import while_unchanged

# Names, attributes or imports by which own code can load other code, or reach it from an object.
ANY_WAY = DYNAMIC | frozenset(
    {
        *("sys", "importlib", "imp", "runpy", "pkgutil", "zipimport", "linecache", "inspect"),
        *("pydoc", "codeop", "pickle", "_pickle", "shelve", "marshal", "dill", "cloudpickle"),
        *("builtins", "__builtins__", "__loader__", "__spec__", "run_module", "load_module"),
        *("joblib", "ctypes", "_ctypes", "cffi", "meta_path", "path_hooks", "path_importer_cache"),
        *("_imp", "_frozen_importlib", "entry_points", "EntryPoint", "pkg_resources", "mock"),
        *("dictConfig", "fileConfig", "allow_pickle", "runcode", "runsource", "timeit", "pdb"),
        *("_interpreters", "_xxsubinterpreters", "get_type_hints", "ForwardRef", "get_annotations"),
        # Another Python.
        *("subprocess", "system", "popen", "pty", "posix_spawn", "posix_spawnp", "subprocess_exec"),
        *("create_subprocess_exec", "create_subprocess_shell", "subprocess_shell"),
        *("execv", "execve", "execvp", "execvpe", "execl", "execle", "execlp", "execlpe"),
        *("spawnv", "spawnve", "spawnvp", "spawnvpe", "spawnl", "spawnle", "spawnlp", "spawnlpe"),
        # Reflection. `getattr` counts unless its name is a literal, which then counts itself.
        *("__self__", "__globals__", "__subclasses__", "__code__", "__closure__", "__dict__"),
        *("__getattribute__", "__reduce__", "__reduce_ex__", "cell_contents", "gc", "getattr"),
        *("vars", "globals", "locals", "attrgetter", "methodcaller", "get_field", "breakpoint"),
        *("f_globals", "f_locals", "f_builtins", "f_back", "tb_frame", "gi_frame", "cr_frame"),
        *("ag_frame", "gi_code", "cr_code", "ag_code", "f_code", "get_referents", "get_objects"),
    }
)
DUNDER = re.compile(r"__[a-z_]+__")  # within a text, such as "{0.__globals__}" for `format`
# The same for names that are too common as a part of a dotted name to count alone.
EXACTLY = frozenset({"exec", "eval", "compile"})
HARMLESS = frozenset({"importlib.metadata", "importlib.resources"})  # may be imported
# Files that Python would import but that cannot be read: shared libraries, compiled files,
# archives.
BINARY = re.compile(r".\.(so(\.[0-9]+)*|pyd|pyc|pyo|dll|dylib|zip|egg|whl)$", re.IGNORECASE)


class BadCode(Exception):
    """The code cannot be analysed; the message says which file and why."""


class _Takes(NamedTuple):
    """How many arguments a function takes."""

    line: int
    least: int
    most: int


class _Module(NamedTuple):
    """What the syntax of one of the experiment's files shows."""

    sha256: str  # of its bytes
    imports: tuple[str, ...]
    any_way: bool  # whether it can load code without an import
    bound: frozenset[str]  # names at its top level
    takes: Mapping[str, _Takes]  # its functions with a plain signature


def of_lab(files: Iterable[str], folder: Path, lab: Path) -> frozenset[str]:
    """What these files of the experiment import from the lab, for `lab_code.entry`. Raises
    BadCode."""
    found = set[str]()
    for path in (folder / name for name in files):
        with _readable(path):
            found |= lab_code.imported(path)
        if _module(path).any_way:
            found.update(lab_code.modules(lab, SHOWN))
    return frozenset(found)


@while_unchanged
def reach(module: str, folder: Path) -> tuple[dict[str, str], set[Path]]:
    """{file: SHA-256} of all own code that `module` reaches, itself included.

    `folder` is the experiment's; its modules are named from there (`prepare`, `parts.clean`). Files
    are named relative to `folder`, so that names do not depend on the machine. Raises BadCode; also
    for a module with the name of a library, because one would be taken for the other, and for
    unreadable code (such as a shared library) beside a module.
    """
    found: dict[str, str] = {}
    waiting = list(_files(module, folder))
    if not waiting:
        raise BadCode(f"there is no module `{module}` in {folder}")
    while waiting:
        path = waiting.pop()
        name = path.relative_to(folder).as_posix()
        if name in found:
            continue
        _refuse_name(name, folder)
        read = _module(path)
        found[name] = read.sha256
        package = path.relative_to(folder).parent.parts
        for wanted in read.imports:
            waiting += _files(_absolute(wanted, package), folder)
        if read.any_way:
            waiting += sorted(folder.rglob("*.py"))
    _refuse_binaries(folder, found)
    files = [folder / name for name in found]
    return dict(sorted(found.items())), {folder, *files, *(file.parent for file in files)}


def _refuse_binaries(folder: Path, found: Iterable[str]) -> None:
    """Raise BadCode for unreadable code beside the files that were found. Python's caches are in
    folders of their own, which no job gets."""
    for below in sorted({Path(name).parent for name in found}):
        for name in sorted(os.listdir(folder / below)):  # noqa: PTH208
            if BINARY.search(name):
                raise BadCode(
                    f"`{(below / name).as_posix()}` is code that cannot be read as Python's source "
                    "and lies beside the experiment's own; remove it"
                )


def _refuse_name(name: str, folder: Path) -> None:
    """Raise BadCode if a file cannot be a module, or would be taken for a library."""
    parts = name.removesuffix(".py").split("/")
    for part in parts:
        if not part.isidentifier():
            raise BadCode(f"`{name}`: `{part}` cannot be the name of a module; rename it")
    if _is_a_library(parts[0], folder):
        raise BadCode(f"`{name}` has the name of the library `{parts[0]}`; rename it")


def _is_a_library(name: str, folder: Path) -> bool:
    """`name` must be an identifier: to find a module with a dotted name, Python would import its
    packages."""
    if name in ROOMS or name in sys.stdlib_module_names:
        return True
    try:
        found = importlib.util.find_spec(name)
    except (ValueError, ImportError):  # `__main__`, for one
        return True
    places = [found.origin, *(found.submodule_search_locations or [])] if found else []
    return any(place and not Path(place).is_relative_to(folder.resolve()) for place in places)


def defined(module: str, folder: Path) -> frozenset[str]:
    """The names of functions and other callables in the experiment's `module`; empty if there is no
    such module."""
    path = _file(module, folder)
    return _module(path).bound if path else frozenset()


def _file(module: str, folder: Path) -> Path | None:
    return next(reversed(list(_files(module, folder))), None)


def uncallable(folder: Path, function: str, given: Sequence[str]) -> str | None:
    """Why a function that is `defined` (module:function) cannot take these arguments; None if it
    can, or if the syntax does not tell."""
    module, _, name = function.partition(":")
    path = _file(module, folder)
    takes = _module(path).takes.get(name) if path else None
    if takes is None or takes.least <= len(given) <= takes.most:
        return None
    words = f"takes {takes.most} parameter{'' if takes.most == 1 else 's'}"
    where = f"`{name}` (line {takes.line} of the module `{module}`)"
    return f"{where} {words}, and it is called with {len(given)}: {', '.join(given)}"


def _plain(nodes: Iterable[ast.AST]) -> dict[str, _Takes]:
    """A module's functions whose signature is certain: `def` without decorators and `*`, and with
    no other definition of the name in the file."""
    bound: dict[str, list[ast.AST]] = {}
    for node in nodes:
        if (name := _binds(node)) is not None:
            bound.setdefault(name, []).append(node)
    if "*" in bound:
        return {}
    return {name: takes for name, found in bound.items() if (takes := _takes(found))}


def _binds(node: ast.AST) -> str | None:
    """The name that this node may bind; `*` for any."""
    if isinstance(node, ast.Name):
        return None if isinstance(node.ctx, ast.Load) else node.id
    if isinstance(node, ast.alias):
        return node.asname or node.name.partition(".")[0]
    return getattr(node, "name", None)  # such as a `def`


def _takes(nodes: Sequence[ast.AST]) -> _Takes | None:
    match nodes:
        case [ast.FunctionDef(args=found, decorator_list=[], lineno=line)] if not found.vararg:
            most = len(found.posonlyargs) + len(found.args)
            return _Takes(line, most - len(found.defaults), most)
    return None


def _names(node: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _files(module: str, folder: Path) -> Iterator[Path]:
    """The experiment's files that run when `module` is imported: its own and its packages'. `a.b`
    may also be a name in `a`."""
    parts = module.split(".")
    if parts[0] in ROOMS:
        return
    places = [folder.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    files = [x for place in places for x in (place.with_suffix(".py"), place / "__init__.py")]
    yield from (path for path in files if _is_file(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no file can have such a name
        return False


def _absolute(wanted: str, package: tuple[str, ...]) -> str:
    """The absolute name of `..a.b` in a module of `package`."""
    name = wanted.lstrip(".")
    dots = len(wanted) - len(name)
    if not dots:
        return name
    return ".".join((*package[: len(package) - dots + 1], *filter(None, [name])))


def _module(path: Path) -> _Module:
    """What a file shows; read again when it has changed."""
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4096)
def _read(path: Path, _: int) -> _Module:
    with _readable(path):
        content = path.read_bytes()
        parsed = ast.parse(content)
        nodes = list(ast.walk(parsed))
    modules: list[str] = []
    names: set[str] = set()
    literal = set[int]()  # the `getattr`s with a literal name
    for node in nodes:
        if isinstance(node, ast.Name):
            names.update(() if id(node) in literal else (node.id,))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            match node.args[1:]:
                case [ast.Constant(value=str(name)), *_]:
                    names.add(name)
                    literal.add(id(node.func))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(DUNDER.findall(node.value))
        elif isinstance(node, ast.MatchClass):
            names.update(node.kwd_attrs)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names.add(node.arg)
        elif isinstance(node, ast.Attribute):
            names.add(f"{node.value.id if isinstance(node.value, ast.Name) else ''}.{node.attr}")
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
            names.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            separator = "" if base.endswith(".") else "."
            named = [alias.name for alias in node.names]
            modules += [base, *(f"{base}{separator}{name}" for name in named)]
            names.update(named, (f"{node.module}.{name}" for name in named))
            names.update(() if node.module in HARMLESS else (node.module or "").split("."))
    alone = {name.rpartition(".")[2] for name in names}
    return _Module(
        sha256=hashlib.sha256(content).hexdigest(),
        imports=tuple(modules),
        any_way=not (alone.isdisjoint(ANY_WAY) and names.isdisjoint(EXACTLY)),
        bound=frozenset(found for node in parsed.body for found in _names(node)),
        takes=_plain(nodes),
    )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn errors of the parser into BadCode: a stranger's file may be nested too deeply or contain
    endless numbers."""
    try:
        yield
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = str(error) or type(error).__name__
        raise BadCode(f"{path.name} cannot be read as Python: {why}") from error
