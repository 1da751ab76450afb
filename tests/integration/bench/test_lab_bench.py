"""What the lab is measured at is what it does: the harnesses at toy size, without their clocks."""

import os
from pathlib import Path

import numpy as np
import pytest

from engine.data.token_store import TokenStore
from runner.execution.ray_jobs import RayAddress
from runner.planning import planner
from runner.spec.graph import MAX_NODES
from runner.worker import task_groups
from runner.worker.selection import held_out
from tests.bench import bot, classifying, steps, tokenizing
from tests.bench import planning as planning_bench


@pytest.mark.parametrize("name", planning_bench.GRAPHS)
def test_the_graphs_that_are_planned_are_as_large_as_they_say(name: str, tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(planning_bench.OWN)
    declare, most = planning_bench.GRAPHS[name]
    (tmp_path / "experiment.yaml").write_text(planning_bench.HEAD + declare(200))
    plan = planner.plan_folder(tmp_path)
    assert 200 <= len(plan.steps) <= 202
    assert most <= MAX_NODES


def test_a_warm_plan_finds_every_step(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(planning_bench.OWN)
    declared = planning_bench.HEAD + planning_bench.sweep(20)
    (tmp_path / "experiment.yaml").write_text(declared)
    assert planning_bench.turn(tmp_path, tmp_path / "store")["steps"] == 20


def test_points_share_tasks_and_what_waits_does_not(tmp_path: Path) -> None:
    steps.declare(tmp_path, steps.sweep(1000))
    tasks = list(
        task_groups.together((plan := planner.plan_folder(tmp_path)).steps, plan.kinds, cores=2)
    )
    assert sum(map(len, tasks)) == 1000
    assert max(map(len, tasks)) == task_groups.MOST_TOGETHER
    steps.declare(tmp_path, steps.chain(30))
    tasks = list(
        task_groups.together((plan := planner.plan_folder(tmp_path)).steps, plan.kinds, cores=2)
    )
    assert tasks == [(f"s{n}",) for n in range(30)]


def test_the_documents_are_tokenized_as_by_the_library(tmp_path: Path) -> None:
    text = "a line with tokenization and other words\n" * 300 + "ä\n"
    total = tokenizing.prepare(text, 40_000, tmp_path)
    assert total >= 40_000
    tokenizing.by_the_engine(tmp_path, tmp_path / "store")
    import tokenizers

    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    store = TokenStore.open(tmp_path / "store")
    found = np.concatenate(list(store.tokens_in_parts()))
    wanted: list[int] = []
    for document in tokenizing.documents(text, 40_000):
        wanted += [*library.encode(document, add_special_tokens=False).ids, 0]
    assert found.tolist() == wanted


def test_both_classifiers_get_the_same_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    body = "\n".join(f"    x{n} = [y ** {n} for y in range({n})]" for n in range(9))
    (tmp_path / "a.py").write_text(
        "\n".join(
            f'def f{n}():\n    """{" ".join(["Returns what", f"number {n}", "says."] * 20)}"""\n'
            f"    return {n}\n{body}\n"
            for n in range(200)
        )
    )
    counts = classifying.prepare(tmp_path, tmp_path)
    lines = (tmp_path / "learn.txt").read_text().splitlines()
    texts, positive = classifying.read(tmp_path, "learn")
    assert [line.partition(" ") for line in lines] == [
        (f"__label__{int(of)}", " ", classifying.one_line(text))
        for text, of in zip(texts, positive, strict=True)
    ]
    assert sum(counts.values()) == 400
    _, _, scores = classifying.by_the_lab(tmp_path)
    assert held_out.auc(scores, classifying.read(tmp_path, "test")[1]) == 1


@pytest.mark.slow
def test_the_bot_answers_the_deliveries_that_it_is_measured_by(tmp_path: Path) -> None:
    """Without a Ray, which no delivery needs."""
    (tmp_path / "token").write_text("none")
    nowhere = RayAddress("http://127.0.0.1:9", tmp_path / "token")
    with bot.a_lab(tmp_path, nowhere) as (sandbox, _, port):
        found = bot.deliveries(sandbox, port, hurried=8, paced=2)
    assert found["hurried"]["count"] == 8
