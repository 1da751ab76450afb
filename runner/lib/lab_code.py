"""Digests of the lab's own code that a step can reach, per definition: functions, classes and
constants at the top level of modules. A digest covers the definition's code and what it refers to.

File and module names do not count: moving a definition, renaming or splitting a module, or writing
an import differently changes no digest. Comments, docstrings and layout do not count either. The
definition's own name does.

Names are resolved as Python would, as far as possible without running code. If a module is used as
a whole (`import engine.model.loss` in an experiment, or `f(loss)`), all of its definitions count.
If a reached definition imports a computed name, all of the lab's code counts.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from runner.lib.paths import ROOMS
from runner.lib.unchanged import while_unchanged

DYNAMIC = frozenset({"import_module", "__import__", "spec_from_file_location", "run_path"})
WITHOUT = frozenset({"ctx", "kind", "type_comment"})  # fields of a syntax tree without meaning
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LAB_CODE = "lab:code"  # the key of a step's code under which the lab's code is
NAMED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
)
LABS = ["Import"]  # an import of the lab's own code: its source does not count
NOT_RUN = ("__name__ == '__main__'", "TYPE_CHECKING")  # false at an import


# What local names refer to: dotted names, of the lab or of a library. None: a variable.
Names = Mapping[str, str | None]


class Definition(NamedTuple):
    """The statements at the top level of a module that define one name."""

    module: str
    name: str
    shape: str  # its statements as JSON, with a placeholder for each reference to the lab's code
    refers: tuple[str, ...]  # dotted names, one per placeholder
    dynamic: bool  # whether it imports a computed name


class Module(NamedTuple):
    imports: Mapping[str, str]
    definitions: Mapping[str, Definition]


def reached(wanted: Iterable[str], lab: Path) -> dict[str, str]:
    """{name: SHA-256} of all definitions below `lab` that the dotted names reach. Each name is a
    definition, or a module or package, which means all of it. Definitions with equal names share an
    entry. Unknown names are left out. Raises OSError, SyntaxError, ValueError, RecursionError."""
    return _reached(tuple(sorted(set(wanted))), lab)


@while_unchanged
def _reached(names: tuple[str, ...], lab: Path) -> tuple[dict[str, str], set[Path]]:
    walk = _Walk(lab)
    return walk.reached(names), walk.places


def entry(wanted: Iterable[str], lab: Path) -> dict[str, str]:
    """{LAB_CODE: SHA-256} of everything that `reached` finds; empty if it finds nothing."""
    found = reached(wanted, lab)
    return {LAB_CODE: _sha256(sorted(found.items()))} if found else {}


def imported(path: Path) -> frozenset[str]:
    """The dotted names of the lab that a file imports, at any depth."""
    return _imported_by(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4096)
def _imported_by(path: Path, _: int) -> frozenset[str]:
    nodes = (x for x in ast.walk(ast.parse(path.read_bytes())) if not getattr(x, "level", 0))
    return frozenset(dotted for _, dotted in _imported(nodes, "") if is_labs(dotted))


class _Walk:
    """Finds reached definitions; reads each file once."""

    def __init__(self, lab: Path) -> None:
        self._lab = lab
        self.places = {lab}  # the files that were read and the folders around them
        self._module = cache(self._read_module)
        self._resolved = cache(self._resolve)

    def reached(self, wanted: Iterable[str]) -> dict[str, str]:
        found = dict[tuple[str, str], Definition]()
        waiting = [one for name in wanted for one in self._reachable(name)]
        while waiting:
            one = waiting.pop()
            if (one.module, one.name) in found:
                continue
            found[one.module, one.name] = one
            if one.dynamic:
                waiting += [x for name in modules(self._lab) for x in self._all_of(name)]
            waiting += [x for name in one.refers for x in self._resolved(name)[0]]
        digests = dict[str, list[str]]()
        for one in found.values():
            # References count by their digests, because two definitions may have the same name.
            others = [self._alone(x) for name in one.refers for x in self._resolved(name)[0]]
            digests.setdefault(one.name, []).append(_sha256([self._alone(one), others]))
        return {
            name: these[0] if len(these) == 1 else _sha256(sorted(these))
            for name, these in sorted(digests.items())
        }

    def _alone(self, one: Definition) -> str:
        """A digest of one definition, in which references count by name only."""
        return _sha256([one.name, one.shape, [self._resolved(name)[1] for name in one.refers]])

    def _resolve(self, dotted: str) -> tuple[tuple[Definition, ...], str]:
        """The definitions that a dotted name refers to, and its name without modules."""
        parts = dotted.split(".")
        for depth in range(len(parts), 0, -1):  # a module hides an equal name in its package
            module = self._module(".".join(parts[:depth]))
            if module is None:
                continue
            if depth == len(parts):
                return tuple(self._all_of(dotted)), "a module"
            name, rest = parts[depth], parts[depth + 1 :]
            if name in module.definitions:
                return (module.definitions[name],), ".".join([name, *rest])
            if (meant := module.imports.get(name)) and meant != ".".join(parts[: depth + 1]):
                further = ".".join([meant, *rest])
                return self._resolved(further) if is_labs(meant) else ((), further)
            return (), ".".join([name, *rest])
        return (), dotted

    def _reachable(self, dotted: str) -> Iterator[Definition]:
        """The definitions that an experiment's code may use by an imported name. For a module, this
        includes what the module imports, and what the modules among this import."""
        waiting = [dotted]
        for reached in waiting:  # grows during the loop
            yield from self._resolved(reached)[0]
            for module in filter(None, map(self._module, (reached, *self._within(reached)))):
                waiting += {x for x in module.imports.values() if is_labs(x)}.difference(waiting)

    def _all_of(self, module: str) -> Iterator[Definition]:
        """All definitions of a module; for a package, those of all its modules, because an importer
        can reach them through the package."""
        for name in (module, *self._within(module)):
            if found := self._module(name):
                yield from found.definitions.values()

    def _within(self, package: str) -> Iterator[str]:
        place = self._lab.joinpath(*package.split("."))
        return _names(place, self._lab) if place.is_dir() else iter(())

    def _read_module(self, name: str) -> Module | None:
        """A module of the lab; None if there is none with this name."""
        place = self._lab.joinpath(*name.split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                self.places |= {path, path.parent}
                return _read(name, path, path.stat().st_mtime_ns)
        return None


def modules(lab: Path, packages: Iterable[str] = ROOMS) -> Iterator[str]:
    """The names of all modules of the lab."""
    for package in packages:
        yield from _names(lab / package, lab)


def _names(folder: Path, lab: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(lab).with_suffix("").parts)
        yield name.removesuffix(".__init__")


@lru_cache(maxsize=4096)
def _read(name: str, path: Path, _: int) -> Module:
    """The definitions of a module, cached until its file changes."""
    tree = ast.parse(path.read_bytes())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports = dict(_imported(_here(tree.body), package))
    parts = _parts(tree)
    known = {**imports, **{one: f"{name}.{one}" for one in parts}}
    definitions = {}
    for one, body in parts.items():
        shaper = _Shaper(package)
        shape = json.dumps([shaper.shape(node, known, known) for node in body])
        dynamic = not shaper.names.isdisjoint(DYNAMIC)
        definitions[one] = Definition(name, one, shape, tuple(shaper.refers), dynamic)
    return Module({key: imports[key] for key in imports.keys() - parts.keys()}, definitions)


def _parts(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """{name: statements} that a module defines. A statement that defines nothing, such as a call,
    belongs to all definitions that it names; if it names none, to all definitions."""
    found, others = dict[str, list[ast.stmt]](), list[ast.stmt]()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_words(node):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in NOT_RUN:
            continue
        names = _bound([node], "")
        for name in names:
            found.setdefault(name, []).append(node)
        if not names or not isinstance(
            node, ast.Assign | ast.AnnAssign | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            others.append(node)
    for node in others:
        named = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)} & found.keys()
        for name in sorted(named) or found:
            if node not in found[name]:
                found[name].append(node)
    return found


def _is_words(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


# ── Names ────────────────────────────────────────────────────────────────────────────────────


def _imported(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str]]:
    """Each name that these imports bind, and the dotted name it refers to."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                dotted = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or dotted, dotted
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                around = package.split(".")
                base = ".".join([*around[: len(around) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                dotted = base if alias.name == "*" else f"{base}.{alias.name}"
                yield alias.asname or alias.name, dotted


def is_labs(dotted: str) -> bool:
    """Whether a dotted name belongs to the lab."""
    return dotted.partition(".")[0] in ROOMS


def _here(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of this scope, without the bodies of functions and classes."""
    waiting = list(body)
    for node in waiting:  # grows during the loop
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def _bound(body: Iterable[ast.AST], package: str) -> dict[str, str | None]:
    """The names that these statements bind in their own scope. Variables of loops and
    comprehensions count as the function's."""
    found, others = dict[str, str | None](), set[str]()
    nodes = list(_here(body))
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] = None
        elif isinstance(node, ast.Global | ast.Nonlocal):
            others.update(node.names)
        elif isinstance(node, NAMED) and node.name:
            found[node.name] = None
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found[node.rest] = None
    found |= _imported(nodes, package)
    return {name: found[name] for name in found if name not in others}


# ── Shapes ───────────────────────────────────────────────────────────────────────────────────


class _Shaper:
    """Turns syntax trees into lists, without positions, docstrings and imports of the lab. Unlike
    Python's own dumps, the result does not depend on the Python version."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.refers = list[str]()
        self.names = set[str]()

    def shape(self, node: Any, names: Names, outer: Names, quoted: bool = False) -> Any:
        """`names` are the visible names; `outer` are those that nested functions see, which a class
        body does not extend. `quoted`: strings are annotations."""
        if isinstance(node, list):
            shapes = [self.shape(one, names, outer, quoted) for one in node]
            return [shape for shape in shapes if shape != LABS]
        if not isinstance(node, ast.AST):
            return repr(node)
        if isinstance(node, ast.Name | ast.Attribute) and (hole := self._hole(node, names)):
            return hole
        if _is_place(node):
            return ["Place"]
        if isinstance(node, ast.Constant) and quoted and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return repr(node.value)
            return self.shape(node, names, outer, quoted)
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = dict(_imported([node], self._package))
            self.names.update(dotted.rpartition(".")[2] for dotted in found.values())
            libraries = sorted(dotted for dotted in found.values() if not is_labs(dotted))
            return ["Import", libraries] if libraries else LABS
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
            quoted = False
        body = outer if isinstance(node, FUNCTIONS) else names
        inner = body
        if isinstance(node, FUNCTIONS):
            of = node.body if isinstance(node.body, list) else [node.body]
            given = [x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)]
            body = inner = {**outer, **dict.fromkeys(given), **_bound(of, self._package)}
        elif isinstance(node, ast.ClassDef):
            body = {**names, **_bound(node.body, self._package)}
        shape: list[Any] = [type(node).__name__]
        for field in node._fields:
            value = getattr(node, field, None)
            if value is None or value == [] or field in WITHOUT:
                continue
            if field == "body" and isinstance(node, DOCUMENTED) and _is_words(value[0]):
                value = value[1:] or [ast.Pass()]
            says = quoted or field in ("annotation", "returns")
            if field == "body" and isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                part = self.shape(value, body, inner if inner is body else outer, False)
            else:
                part = self.shape(value, names, outer, says)
            shape.append([field, part])
        return shape

    def _hole(self, node: ast.Name | ast.Attribute, names: Names) -> Any:
        """The placeholder for an imported or top-level name and its attributes; None for any other
        name."""
        rest, base = list[str](), node
        while isinstance(base, ast.Attribute):
            rest.insert(0, base.attr)
            self.names.add(base.attr)
            base = base.value  # type: ignore[assignment]
        if not isinstance(base, ast.Name):
            return None
        self.names.add(base.id)
        if not (means := names.get(base.id)):
            return None
        dotted = ".".join([means, *rest])
        if not is_labs(means):
            return ["Library", dotted]
        self.refers.append(dotted)
        return ["Lab"]


def _is_place(node: ast.AST) -> bool:
    """Whether the node is `Path(__file__).parent` or `.parents[1]`: the file's location does not
    count."""
    if isinstance(node, ast.Subscript):
        node = node.value
    match node:
        case ast.Attribute(
            value=ast.Call(func=ast.Name(id="Path"), args=[ast.Name(id="__file__")]),
            attr="parent" | "parents",
        ):
            return True
    return False


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
