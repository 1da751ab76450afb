"""The lab as a client of the Model Context Protocol sees it: it reads and proposes."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from bot.cli import mcp_server
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.scenarios.lab import EXPERIMENT, TEXT

ALONE = EXPERIMENT.replace("preregistration: 1\n", "")
CORPUS = ALONE.replace("text.txt", "stdlib")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with an experiment, and a store with an execution."""
    folder = tmp_path / "experiments/warm"
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(ALONE)
    (folder / "text.txt").write_text(TEXT)
    store = Store(tmp_path / "store")
    predictions = [synthetic.prediction()]
    seal = synthetic.preregister(store, 1, predictions=predictions)
    plan = synthetic.plan(preregistration=1, predictions=predictions)
    of = synthetic.execution(plan.model_copy(update={"seal": seal.seal}))
    synthetic.finish(store, of, synthetic.PLAIN)
    return tmp_path


def called(root: Path, tool: str, **arguments: Any) -> Any:
    """What a tool answers to the package's own client."""

    async def call() -> Any:
        async with Client(mcp_server.server(root, str(root / "store"))) as client:
            return await client.call_tool(tool, arguments)

    found = asyncio.run(call())
    if found.is_error:
        return found.content[0].text
    return found.structured_content


def test_its_tools_read_and_propose_and_none_approves(root: Path) -> None:
    async def tools() -> Any:
        async with Client(mcp_server.server(root, str(root / "store"))) as client:
            return (await client.list_tools()).tools

    found = {tool.name: tool.annotations for tool in asyncio.run(tools())}
    assert set(found) == {
        *("list_experiments", "read_declaration", "declaration_schema", "plan_experiment"),
        *("plan_declaration", "list_executions", "read_result", "read_boards"),
        *("read_predictions", "propose_experiment"),
    }
    writes = [name for name, of in found.items() if not of.read_only_hint]
    assert writes == ["propose_experiment"]
    assert not found["propose_experiment"].destructive_hint
    assert not any(word in name for name in found for word in ("run", "approve", "cancel"))


def test_it_reads_experiments_plans_and_results(root: Path) -> None:
    assert called(root, "list_experiments") == {"experiments": ["warm"]}
    assert called(root, "read_declaration", name="warm")["declaration"] == ALONE
    plan = called(root, "plan_experiment", name="warm")
    assert (plan["cost"]["runs"], plan["problems"]) == (6, [])
    assert set(plan["arms"]) == {"fast", "slow"}
    (line,) = called(root, "list_executions")["executions"]
    assert line["state"] == "done"
    result = called(root, "read_result", execution=line["execution"])
    assert [one["outcome"] for one in result["verdicts"]] == ["confirmed"]
    assert len(result["runs"]) == 6
    board = called(root, "read_boards")["groups"][0]["rows"]
    assert [row["arm"] for row in board] == ["fast", "slow"]
    (one,) = called(root, "read_predictions")["predictions"]
    assert (one["outcome"], one["author"]) == ("confirmed", "ada")
    assert called(root, "declaration_schema")["title"] == "An experiment of Regatta"


def test_a_lab_without_a_store_has_nothing_to_read_yet(tmp_path: Path) -> None:
    assert called(tmp_path, "list_executions") == {"executions": [], "older": 0}
    assert called(tmp_path, "read_boards") == {"groups": []}
    assert called(tmp_path, "list_experiments") == {"experiments": []}
    assert not list(tmp_path.iterdir())


def test_a_draft_gets_its_plan_or_every_problem_with_its_line(root: Path) -> None:
    assert called(root, "plan_declaration", declaration=CORPUS)["cost"]["runs"] == 6
    of_warm = called(root, "plan_declaration", declaration=ALONE, name="warm")
    assert of_warm["problems"] == [], "the text beside the experiment is there"
    wrong = CORPUS.replace("learning_rate: 0.003", "learning_rat: 0.003")
    answer = called(root, "plan_declaration", declaration=wrong)
    assert list(answer) == ["problems"]
    (problem,) = answer["problems"]
    assert (problem["field"], problem["line"]) == ("train.learning_rat", 4)
    assert problem["file"] == "experiments/draft/experiment.yaml"
    assert "did you mean `learning_rate`?" in problem["message"]


def test_a_proposal_is_written_once_into_a_folder_of_its_own(root: Path) -> None:
    answer = called(root, "propose_experiment", name="cold", declaration=CORPUS)
    assert answer["written"] == "experiments/cold/experiment.yaml"
    assert (root / answer["written"]).read_text() == CORPUS
    before = sorted(root.rglob("*"))
    again = called(root, "propose_experiment", name="warm", declaration=CORPUS)
    assert "exists; choose another name" in again
    for name in ("../cold", "a/b", ".", "x" * 81, "-x"):
        assert isinstance(called(root, "propose_experiment", name=name, declaration=CORPUS), str)
    wrong = called(root, "propose_experiment", name="new", declaration="arms: 3\n")
    assert wrong["problems"]
    assert sorted(root.rglob("*")) == before, "what is refused writes nothing"


@pytest.mark.parametrize("name", ["../../etc", "/etc", "warm/../..", ""])
def test_no_name_leads_out_of_the_folder_of_experiments(root: Path, name: str) -> None:
    for tool in ("read_declaration", "plan_experiment"):
        assert "there is no experiment" in called(root, tool, name=name)
    said = called(root, "read_result", execution=name)
    assert isinstance(said, str)
    assert record.names(Store(root / "store"), "executions")


LINKS = {
    "the folder": lambda root, out: (root / "experiments/linked").symlink_to(out),
    "the folder, in steps": lambda root, out: (
        (root / "experiments/step").symlink_to(out),
        (root / "experiments/linked").symlink_to("step"),
    ),
    "the declaration": lambda root, out: (
        (root / "experiments/linked").mkdir(),
        (root / "experiments/linked/experiment.yaml").symlink_to(out / "experiment.yaml"),
    ),
    "the declaration, to a file that is none": lambda root, out: (
        (root / "experiments/linked").mkdir(),
        (root / "experiments/linked/experiment.yaml").symlink_to(out / "secret"),
    ),
    "a text": lambda root, out: (
        (root / "experiments/linked").mkdir(),
        (root / "experiments/linked/experiment.yaml").write_text(ALONE),
        (root / "experiments/linked/text.txt").symlink_to(out / "text.txt"),
    ),
    "own code": lambda root, out: (
        (root / "experiments/linked/parts").mkdir(parents=True),
        (root / "experiments/linked/experiment.yaml").write_text(CORPUS),
        (root / "experiments/linked/parts/own.py").symlink_to(out / "secret"),
    ),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("tool", ["read_declaration", "plan_experiment", "plan_declaration"])
def test_no_link_in_a_checkout_leads_a_tool_out_of_it(root: Path, link: str, tool: str) -> None:
    out = root / "outside"
    out.mkdir()
    (out / "experiment.yaml").write_text(f"{ALONE}# canary\n")
    (out / "text.txt").write_text(TEXT)
    (out / "secret").write_text("canary = 1\n")
    LINKS[link](root, out)
    given = {"declaration": ALONE} if tool == "plan_declaration" else {}
    answer = called(root, tool, name="linked", **given)
    assert isinstance(answer, str), "it is refused in words"
    assert "is a link" in answer
    assert "canary" not in answer


def test_nothing_is_written_through_a_link(root: Path) -> None:
    out = root / "outside"
    (root / "experiments").rename(out)
    (root / "experiments").symlink_to(out)
    answer = called(root, "propose_experiment", name="cold", declaration=CORPUS)
    assert "experiments is a link" in answer
    assert not (out / "cold").exists()
    (root / "experiments").unlink()
    out.rename(root / "experiments")
    (root / "experiments/cold").symlink_to(root / "new")  # leads to what is not there yet
    assert "exists" in called(root, "propose_experiment", name="cold", declaration=CORPUS)
    assert not (root / "new").exists()


def test_a_declaration_that_is_no_file_is_not_waited_for(root: Path) -> None:
    (root / "experiments/pipe").mkdir()
    os.mkfifo(root / "experiments/pipe/experiment.yaml")
    assert "not a regular file" in called(root, "read_declaration", name="pipe")
