"""What an edit makes again: exactly what depends on it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.lib import paths
from runner.lib.problems import BadExperiment
from runner.planning import planner

HERE = Path(paths.LAB)
EXAMPLE = HERE / "experiments" / "wide-or-deep"
ALL = {"prepare", "tokenize", "train/deep", "train/wide", "evaluate", "compare"}
FROM_TOKENS = ALL - {"prepare"}
FROM_TRAINING = ALL - {"prepare", "tokenize"}

Edit = Callable[[Path, Path], None]  # of the experiment's folder and the lab's


def there(name: str, old: str, new: str) -> Edit:
    """An edit of a file of the experiment's."""

    def edit(folder: Path, _: Path) -> None:
        replace(folder / name, old, new)

    return edit


def lab(name: str, old: str, new: str) -> Edit:
    """An edit of a file of the lab's."""

    def edit(_: Path, root: Path) -> None:
        replace(root / name, old, new)

    return edit


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


YAML = "experiment.yaml"
EDITS: dict[str, tuple[Edit, set[str]]] = {
    "a comment in the declaration": (there(YAML, "# Own code", "# 5"), set()),
    "the title": (there(YAML, "is a wider", "would a wider be"), set()),
    "the order of keys": (
        there(YAML, "tokenizer: bpe, vocab_size: 512", "vocab_size: 512, tokenizer: bpe"), set()),
    "a default written out": (there(YAML, "vocab_size: 512}\n  train", "vocab_size: 512, "
                              "source: null}\n  train"), set()),
    "a device": (there(YAML, "{kind: cpu}", "{kind: h100}"), set()),
    "a comment in own code": (there("prepare.py", "root = ", "# words\n    root = "), ALL),
    "a docstring in own code": (
        there("compare.py", "best first", "the best one first"), {"compare"}),
    "layout of own code": (
        there("compare.py", "assert not config", "assert (not config)"), {"compare"}),
    "a comment in the engine": (lab("engine/model/loss.py", "import math", "# m\nimport math"),
        set()),
    "how often training saves": (
        there(YAML, "warmup: 0.1", "warmup: 0.1, checkpoint_every: 7"), set()),
    "a line of the lab's that no step reaches": (
        lab("runner/scheduler/queue_order.py", "import math", "import sys\nimport math"), set()),
    "a file that nothing imports": (
        lambda folder, _: (folder / "notes.py").write_text("x = 1") and None, set()),
    "a learning rate": (
        there(YAML, "learning_rate: 0.01", "learning_rate: 0.02"), FROM_TRAINING),
    "one arm": (
        there(YAML, "num_layers: 5", "num_layers: 6"), {"train/deep", "evaluate", "compare"}),
    "the vocabulary": (there(YAML, "bpe, vocab_size: 512", "bpe, vocab_size: 511"), FROM_TOKENS),
    "how much is scored": (there(YAML, "8192", "4096"), {"evaluate", "compare"}),
    "what is prepared": (there(YAML, "most_documents: 400", "most_documents: 401"), ALL),
    "a line of the first step": (there("prepare.py", "HELD_OUT = 10", "HELD_OUT = 9"), ALL),
    "a line of the last step": (there("compare.py", ":.4f", ":.5f"), {"compare"}),
    "what no definition uses": (
        lab("engine/model/loss.py", "def cross_entropy", "X = 1\n\n\ndef cross_entropy"), set()),
    "the loss": (lab("engine/model/loss.py", "targets_BS >= 0", "targets_BS > 0"),
                 {"train/deep", "train/wide", "evaluate", "compare"}),
    "the tokenizers": (lab("engine/data/tokenize.py", "END = ", "END = 1 + "), FROM_TOKENS),
    "the optimizer": (lab("engine/training/optim.py", "TINY = 1e-10", "TINY = 1e-9"),
        FROM_TRAINING),
    "the evaluator": (lab("engine/training/evaluate.py", "MOST_LOGITS = 2**26", "MOST_LOGITS = "
                                                                                "2**25"),
                      {"evaluate", "compare"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example and the lab's code, to be edited."""
    root = tmp_path_factory.mktemp("repository")
    for room in ("engine", "runner"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HERE / room, root / room, ignore=ignore)
    shutil.copytree(EXAMPLE, root / "wide-or-deep")
    return root


def fingerprints(root: Path) -> dict[str, str]:
    steps = planner.plan_folder(root / "wide-or-deep", lab=root).steps
    return {name: step.fingerprint for name, step in steps.items()}


@pytest.fixture(scope="module")
def before(copies: Path) -> dict[str, str]:
    found = fingerprints(copies)
    assert set(found) == ALL
    return found


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_makes_again_exactly_what_depends_on_it(
    what: str, copies: Path, before: dict[str, str]
) -> None:
    edit, expected = EDITS[what]
    kept = {path: path.read_bytes() for path in copies.rglob("*.*") if path.is_file()}
    try:
        edit(copies / "wide-or-deep", copies)
        after = fingerprints(copies)
        assert {name for name in after if after[name] != before.get(name)} == expected
        assert set(after) == ALL
    finally:
        for path in [path for path in copies.rglob("*.*") if path.is_file()]:
            path.unlink() if path not in kept else None
        for path, content in kept.items():
            if path.read_bytes() != content:
                path.write_bytes(content)


def test_the_folders_name_and_place_change_nothing(
    copies: Path, before: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(copies / "wide-or-deep", tmp_path / "elsewhere")
    steps = planner.plan_folder(tmp_path / "elsewhere", lab=copies).steps
    assert {name: step.fingerprint for name, step in steps.items()} == before
    assert steps["prepare"].store == "elsewhere.prepare.documents", "own code's outputs are its own"
    assert steps["tokenize"].store == "elsewhere.tokenize", "and what is made of them"


def test_a_function_that_is_not_there_is_said_with_its_line(copies: Path, tmp_path: Path) -> None:
    shutil.copytree(copies / "wide-or-deep", tmp_path / "x")
    replace(tmp_path / "x" / YAML, "prepare:documents", "prepare:document")
    with pytest.raises(BadExperiment) as it:
        planner.plan_folder(tmp_path / "x", lab=copies)
    [problem] = it.value.problems
    assert (problem.line, problem.field) == (7, "steps.prepare")
    words = "has no `document` in a module `prepare`; did you mean `documents`?"
    assert problem.message.endswith(words)
