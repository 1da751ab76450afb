"""The modules that an experiment brought along, as the store keeps them for its jobs: what they
contain, and how they differ from those of another experiment."""

import ast
import difflib
from collections.abc import Mapping
from typing import Any

from runner.lib.canonical_json import to_json
from runner.store.store import Store

MOST = 600_000  # bytes of all of them that are read; `MAX_CODE` of the bot is below
LONG = 256  # bytes of a literal from which it is a table


def of(store: Store, folder: str) -> dict[str, bytes]:
    """The modules in a folder of the store, by path; without what is beyond `MOST`."""
    found, left = dict[str, bytes](), MOST
    for file in sorted(store.walk(folder), key=lambda file: file.name):
        content = store.read(file.name) or b""
        if file.name.endswith(".py") and len(content) <= left:
            found[file.name.removeprefix(f"{folder}/")] = content
            left -= len(content)
    return found


def lines(code: bytes) -> list[str]:
    """The lines of a module that are not blank."""
    text = code.decode(errors="replace").splitlines()
    return [line.rstrip() for line in text if line.strip()]


def changed(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> int:
    """How many lines were added or removed, of all modules together; blank ones do not count."""
    total = 0
    for path in before.keys() | now.keys():
        old, new = lines(before.get(path, b"")), lines(now.get(path, b""))
        for how, i, j, k, m in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
            total += (j - i) + (m - k) if how != "equal" else 0
    return total


def changed_in(store: Store, before: str, now: str) -> int:
    """The same of the modules in two folders of the store; an empty name is that of no modules."""
    one, other = (of(store, folder) if folder else {} for folder in (before, now))
    return changed(one, other)


def tables(code: bytes) -> int:
    """Bytes of a module's long literals: text, bytes, and collections of constants. Docstrings do
    not count. A module that is not Python counts as a table."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return len(code)
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    where = [0]
    for line in code.splitlines(keepends=True):
        where.append(where[-1] + len(line))

    def size(node: ast.expr) -> int:
        if node.end_lineno is None or node.end_col_offset is None:
            return 0
        end = where[node.end_lineno - 1] + node.end_col_offset
        return end - where[node.lineno - 1] - node.col_offset

    found, waiting = 0, list[ast.AST]([tree])
    for node in waiting:  # grows during the loop
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Set | ast.Dict):
            whole = all(_plain(inner) for inner in ast.walk(node))
            if whole and id(node) not in documented and size(node) > LONG:
                found += size(node)
                continue
        waiting.extend(ast.iter_child_nodes(node))
    return found


def declared_tables(value: Any) -> int:
    """Bytes of the long texts and lists in a step's configuration, which own code can read."""
    if isinstance(value, dict):
        return sum(map(declared_tables, (*value, *value.values())))
    size = len(to_json(value)) if isinstance(value, str | list) else 0
    return size if size > LONG else 0


def _plain(node: ast.AST) -> bool:
    kinds = ast.Constant | ast.List | ast.Tuple | ast.Set | ast.Dict | ast.UnaryOp | ast.unaryop
    return isinstance(node, kinds | ast.expr_context)
