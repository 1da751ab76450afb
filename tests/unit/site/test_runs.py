"""The pages of runs: curve, configuration, provenance, how to do it again, and comparison."""

import json

import pytest

from bot.site.charts import provenance_drawn
from bot.site.facts.entries import read_entry
from bot.site.pages import runs
from bot.site.pages.build import build
from bot.site.pages.templating import compared
from runner.lib import redact
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import HOST, Page


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def entry(store):
    execution = synthetic.execution(synthetic.plan())
    synthetic.finish(store, execution, synthetic.PLAIN)
    return read_entry(store, execution.id)


def test_a_runs_page_tells_how_to_do_it_again(store, entry, tmp_path):
    build(store, tmp_path / "site", repository_url="https://github.com")
    page = Page(tmp_path / "site" / "runs" / f"{entry.names[0]}.html")
    origin = entry.execution.origin
    assert "git clone https://github.com/regatta/lab lab && cd lab" in page.text
    assert f"git fetch origin pull/2/head && git checkout {origin.commit}" in page.text
    assert f"regatta run {entry.plan.experiment}" in page.text
    assert f"/reproduce {entry.execution.id}" in page.text
    assert entry.runs[0].evaluated.params_sha256 in page.text
    assert entry.plan.fingerprint in page.text
    assert "learning_rate 0.003" in page.text


def test_a_run_of_the_sandbox_gives_no_command_that_fails(store, entry, tmp_path):
    build(store, tmp_path / "site", repository_url=HOST)
    page = Page(tmp_path / "site" / "runs" / f"{entry.names[0]}.html")
    assert "make .venv/ready and . .venv/bin/activate" in page.text
    assert "git clone" not in page.text
    assert f"regatta run {entry.plan.experiment}" in page.text
    assert f"The files are at commit {entry.execution.origin.commit[:12]}" in page.text
    assert f"/reproduce {entry.execution.id}" in page.text


def test_a_runs_page_shows_what_it_was_made_of_as_a_picture_and_as_a_list(entry):
    nodes = provenance_drawn.of_run(entry, entry.runs[0])
    assert list(nodes) == ["tokenize", "train/fast,seed=0", "evaluate"]
    assert nodes["evaluate"].takes == ("train/fast,seed=0", "tokenize")
    assert [node.here for node in nodes.values()] == [False, True, False]
    svg = provenance_drawn.drawing(nodes)
    assert svg.count("<rect") == 3
    assert svg.count("<path") == 3


def test_names_in_a_picture_are_words():
    node = provenance_drawn.Node("<b>", "<i>")
    svg = provenance_drawn.drawing({"<b>": node, "x": provenance_drawn.Node("x", "", ("<b>",))})
    assert "<b>" not in svg
    assert "&lt;b&gt;" in svg


def test_a_runs_script_has_its_curve_and_what_a_comparison_needs(store, entry, tmp_path):
    build(store, tmp_path / "site")
    text = (tmp_path / "site" / "runs" / f"{entry.names[0]}.js").read_text()
    body = json.loads(text.partition(",")[2].removesuffix(");\n"))
    assert len(body["data"]["curve"]["loss"]) == 16
    assert body["run"]["config"]["learning_rate"] == 0.003
    assert body["run"]["figures"]["eval/bpb"] == 2.58
    assert body["run"]["page"] == f"runs/{entry.names[0]}.html"


def test_a_run_and_its_execution_have_a_validation_curve_where_snapshots_were_scored(
    store, tmp_path
):
    execution = synthetic.execution(synthetic.plan())
    points = ((4, 3.0, 0.05), (8, 2.75, None), (16, 2.58, 0.04))
    found = [
        synthetic.run(execution.plan, arm, seed, 2.58, execution=execution.id)
        for arm, seed in execution.plan.runs()
    ]
    found[0] = found[0].model_copy(update={"validation": points})
    synthetic.finish(store, execution, synthetic.PLAIN, runs=found)
    build(store, tmp_path / "site")
    first, second = (
        tmp_path / "site" / "runs" / f"{execution.id}.{record.run_name(run.arm, run.seed)}.html"
        for run in found[:2]
    )
    text = first.with_suffix(".validation.js").read_text()
    body = json.loads(text.partition(",")[2].removesuffix(");\n"))
    assert body["data"]["curve"] == {
        "step": [4, 8, 16], "bpb": [3.0, 2.75, 2.58], "error": [0.05, None, 0.04],
        "low": [2.902, 2.75, 2.5016], "high": [3.098, 2.75, 2.6584],
    }  # fmt: skip
    assert "from 3 at step 4 to 2.58 at step 16" in first.read_text()
    assert "Validation curve" not in second.read_text()
    assert not second.with_suffix(".validation.js").exists()
    whole = tmp_path / "site" / "executions" / execution.id
    assert "ends at 2.58 after 65,536 tokens" in (whole / "index.html").read_text()
    assert '"bpb":[3.0,2.75,2.58]' in (whole / "validation.js").read_text()


def test_every_run_can_be_asked_for_by_name(store, entry, tmp_path):
    build(store, tmp_path / "site")
    text = (tmp_path / "site" / runs.NAMES).read_text()
    names = json.loads(text.partition(",")[2].removesuffix(");\n"))["names"]
    assert [name for name, _ in names] == entry.names


def test_a_name_with_commas_stays_one_name_in_a_link():
    assert compared(["x1.a.s0", "x1.lr=1,w=2.s0"]) == "runs=x1.a.s0,x1.lr%253D1%252Cw%253D2.s0"


def write_log(store, execution, words):
    folder = synthetic.making(store, execution.id, "fast.s0", execution.plan)
    path = store.local(f"{folder}/log.txt")
    path.parent.mkdir(parents=True)
    path.write_bytes(words)


def test_the_end_of_the_log_is_shown_without_secrets_and_control_characters(store, entry):
    redact.hold("hunter2-hunter2")
    line = b"step 16 loss 1.9\n"
    write_log(store, entry.execution, line * 2000 + b"\x1b[31mred\nkey hunter2-hunter2\nend\n")
    shown = runs.log_of(store, entry, entry.runs[0])
    assert shown.endswith("key [secret]\nend")
    assert "hunter2" not in shown
    assert "\x1b" not in shown
    assert len(shown) <= runs.MAX_LOG
    assert shown.startswith("step 16")


def test_a_link_in_the_logs_place_is_not_followed(store, entry, tmp_path):
    (tmp_path / "secret").write_text("words of somebody else")
    execution = entry.execution
    folder = store.local(synthetic.making(store, execution.id, "fast.s0", execution.plan))
    folder.mkdir(parents=True)
    (folder / "log.txt").symlink_to(tmp_path / "secret")
    assert runs.log_of(store, entry, entry.runs[0]) is None


def test_without_a_log_there_is_no_section_for_it(store, entry, tmp_path):
    build(store, tmp_path / "site")
    assert "End of the log" not in Page(tmp_path / "site" / "runs" / f"{entry.names[0]}.html").text


def planned(do, *takes, **config):
    return synthetic.record.PlannedStep(
        do=do,
        function="m:f",
        config=config,
        inputs={"from": {name: synthetic.sha(name) for name in takes}} if takes else {},
        code={},
        resources=synthetic.record.Resources(kind="cpu"),
        fingerprint=synthetic.sha(do + str(takes) + str(config)),
        store="x",
    )


def test_only_steps_before_and_after_a_run_are_drawn(entry):
    steps = {
        "text": planned("map"),
        "tokens": planned("tokenize", "text"),
        "train/fast": planned("train", "tokens", seed=0),
        "train/slow": planned("train", "tokens", seed=0),
        "scores": planned("evaluate", "train/fast", "train/slow", "tokens"),
        "aside": planned("map", "text"),
    }
    plan = entry.plan.model_copy(update={"steps": steps})
    execution = entry.execution.model_copy(update={"plan": plan})
    run = entry.runs[0].model_copy(update={"arm": "fast", "seed": 0})
    nodes = provenance_drawn.of_run(entry.model_copy(update={"execution": execution}), run)
    assert set(nodes) == {"text", "tokens", "train/fast", "scores"}
    assert nodes["scores"].takes == ("train/fast", "tokens")
    assert [name for name, node in nodes.items() if node.here] == ["train/fast"]
    assert provenance_drawn.drawing(nodes).count("<path") == 4
