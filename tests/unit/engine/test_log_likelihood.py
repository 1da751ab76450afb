"""That no place but one computes how likely tokens are under logits."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import engine

ROOT = Path(engine.__file__).parents[1]
REFUSED = {"log_softmax", "logsumexp", "softmax_cross_entropy", "logaddexp", "log_sigmoid"}
REFUSED |= {"softmax_cross_entropy_with_integer_labels", "sparse_categorical_crossentropy"}
ALLOWED = {  # none of these has logits over a vocabulary
    # the z-loss of a router, whose logits are over experts
    "engine/model/experts.py": ["logsumexp"],
    # the logistic loss of classifiers of documents
    "runner/worker/selection/held_out.py": ["logaddexp"],
    "runner/worker/selection/linear_classifier.py": ["logaddexp"],
    # fits of scaling laws, to losses, and curves with a bend
    "runner/analysis/bends.py": ["logaddexp", "logaddexp", "interval: log, sum and exp"],
    "runner/analysis/scaling.py": ["fit_huber: log, sum and exp", "_profile: log, sum and exp"],
    "runner/analysis/speedup.py": ["speedup: log, sum and exp"],
}
FORMULA = "engine/model/log_likelihood.py"


def names_of_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            of = node.func
            yield of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
        if isinstance(node, ast.ImportFrom):
            yield from (name.name for name in node.names)


def second_formulas(source: str) -> list[str]:
    """Calls that compute a log-softmax, and functions that take a log of a sum of exponentials."""
    tree = ast.parse(source)
    found = [name for name in names_of_calls(tree) if name in REFUSED]
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            calls = set(names_of_calls(function))
            if {"exp", "sum"} <= calls and calls & {"log", "log2", "log1p"}:
                found.append(f"{function.name}: log, sum and exp")
    return found


def test_no_other_place_computes_a_log_softmax_of_logits() -> None:
    files = [path for room in ("engine", "runner", "bot") for path in (ROOT / room).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT)): second_formulas(path.read_text(encoding="utf-8"))
        for path in files
    }
    assert len(files) > 400
    assert found.pop(FORMULA), "the formula itself is seen"
    places = {path: calls for path, calls in found.items() if calls}
    assert places == ALLOWED, f"use {FORMULA}"


@pytest.mark.parametrize(
    "source",
    [
        "x = jax.nn.log_softmax(z)",
        "from scipy.special import logsumexp",
        "def nats(z, t):\n    m = z.max()\n    return np.log(np.exp(z - m).sum()) + m - z[t]",
        "def nats(z):\n    e = jnp.exp(z)\n    return jnp.log(jnp.sum(e))",
    ],
)
def test_a_second_formula_is_seen(source: str) -> None:
    assert second_formulas(source)
