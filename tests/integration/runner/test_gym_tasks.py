"""Items that generators of reasoning-gym make. A stand-in has its interface; where the real one is
installed, it is asked, too."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.isolation import limited
from runner.planning import gym_child, planner, task_sources
from runner.spec.benchmarks import measures
from runner.spec.task_items import Answer, BadTask, items_of
from runner.store.store import Store
from tests.integration.runner.test_benchmark import LABS, declared

STAND_IN = """
import random
from . import factory

class Sums:
    def __init__(self, seed, size):
        self.seed, self.size = seed, size

    def __getitem__(self, number):
        if number >= self.size:
            raise IndexError
        a, b = random.Random(f"{self.seed} {number}").choices(range(99), k=2)
        return {"question": f"What is {a} + {b}?", "answer": str(a + b), "metadata": {}}

class Grids(Sums):
    def __getitem__(self, number):
        return {"question": "Draw.", "answer": "1 2\\n\\n3 4"}

class Open(Sums):
    def __getitem__(self, number):
        return {"question": "Any?", "answer": None}

class Loops(Sums):
    def __getitem__(self, number):
        while True: pass

class Large(Sums):
    def __getitem__(self, number):
        return {"question": "x" * (16 << 20), "answer": "x"}

def create_dataset(name, seed, size):
    if name == "composite":
        raise ValueError("it needs datasets")
    return globals()[name.title()](seed, size)
"""
DATASETS = ["sums", "grids", "open", "loops", "large", "composite"]


@pytest.fixture
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = tmp_path / "reasoning_gym"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    (package / "factory.py").write_text(f"DATASETS = dict.fromkeys({DATASETS})")
    path = f"{tmp_path}:{limited.ENVIRONMENT['PYTHONPATH']}"
    monkeypatch.setitem(limited.ENVIRONMENT, "PYTHONPATH", path)
    monkeypatch.setattr(limited, "_SERVERS", {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: "there")
    gym_child.items.cache_clear()
    yield
    gym_child.items.cache_clear()


@pytest.mark.usefixtures("_stand_in")
def test_a_generator_makes_so_many_items_and_always_the_same(tmp_path: Path) -> None:
    found = task_sources.content("gym/sums", tmp_path, 5)
    kind, items = items_of(found, "gym/sums")
    assert (kind, len(items), len({item.prompt for item in items})) == ("answer", 5, 5)
    for item in items:
        words = item.prompt.removesuffix("?\nAnswer:").split()
        assert item.answer == f" {int(words[2]) + int(words[4])}"
        assert item.stop == ["\n"]
    gym_child.items.cache_clear()
    assert task_sources.content("gym/sums", tmp_path, 5) == found
    assert task_sources.content("gym/sums", tmp_path, 2) == b"".join(found.splitlines(True)[:2])


@pytest.mark.usefixtures("_stand_in")
def test_a_plan_keeps_the_items_that_were_made(tmp_path: Path) -> None:
    head, _, _ = LABS.rpartition("benchmarks:")
    text = head + "benchmarks: {tasks: [gym/sums], items: 7}\n"
    plan = planner.plan_folder(declared(tmp_path / "labs", text), store := Store(tmp_path / "it"))
    step = plan.steps["benchmarks"]
    assert step.config["files"]["gym/sums"]["items"] == 7
    assert list(measures(step.config)) == ["task/sums/exact_match", "task/sums/bpb"]
    folder = planner.kept_folder(step)
    assert folder
    assert (store.fetch(folder) / "sums.jsonl").read_bytes() == gym_child.items("sums", 7)


@pytest.mark.usefixtures("_stand_in")
def test_an_answer_of_several_lines_ends_after_them() -> None:
    assert json.loads(gym_child.items("grids", 1)) == {
        "prompt": "Draw.\nAnswer:", "answer": " 1 2\n\n3 4", "stop": ["\n\n\n"]
    }  # fmt: skip


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("sum", "gym/sum: reasoning-gym has no such dataset; did you mean `sums`"),
        (
            "composite",
            r"cannot make 3 items of it \(it failed with ValueError: it needs datasets\); t",
        ),
        ("open", r"\(it failed with ValueError: a question has no single answer\); take it out"),
        ("loops", r"3 items of it \(it took more than 2 s\); lower `items`"),
        ("large", r"3 items of it \(its answer has more than 16 MiB\); lower `items`"),
    ],
)
def test_what_no_generator_can_make_is_refused_when_planned(
    dataset: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dataset == "loops":
        monkeypatch.setattr(gym_child, "LIMITS", gym_child.LIMITS._replace(seconds=2.0))
    with pytest.raises(BadTask, match=words):
        gym_child.items(dataset, 3)


def test_without_reasoning_gym_its_tasks_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadTask, match=r"run `pip install 'regatta\[gym\]'` where the lab plans"):
        gym_child.items("never_asked", 1)


@pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="not run: reasoning-gym is missing"
)
@pytest.mark.parametrize("dataset", ["chain_sum", "spell_backward", "mini_sudoku"])
def test_generators_of_reasoning_gym_make_items_that_their_own_judge_accepts(dataset: str) -> None:
    import reasoning_gym  # type: ignore[import-not-found,unused-ignore]

    gym_child.items.cache_clear()
    _, items = items_of(gym_child.items(dataset, 20), dataset)
    made = reasoning_gym.create_dataset(dataset, seed=gym_child.SEED, size=20)
    assert len(items) == 20
    for item, entry in zip(items, made, strict=True):
        assert isinstance(item, Answer)
        assert made.score_answer(item.answer.strip(), entry) == 1
