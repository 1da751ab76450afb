"""How to cite and how to use what a run left."""

import re

import pytest

from bot.site.facts import models
from bot.site.facts.lab import read_lab
from bot.site.pages.build import build
from bot.site.pages.citation import bibtex, tex
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import Page


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_a_citation_has_author_commit_and_seal(store):
    seal = synthetic.preregister(store, 1)
    plan = synthetic.plan(preregistration=1, title="100 % sure? {No}")
    execution = synthetic.execution(plan)
    synthetic.finish(store, execution, synthetic.PLAIN)
    (entry,) = read_lab(store).entries
    said = bibtex(entry, "fast, seed 0", "Our lab", "https://lab.example/runs/x.html")
    assert said.startswith(f"@misc{{regatta-{execution.id}-fast-seed-0,\n")
    assert r"title = {100 \% sure? \{No\}: fast, seed 0}" in said
    assert "author = {ada}" in said
    assert r"\url{https://lab.example/runs/x.html}" in said
    assert execution.origin.commit[:12] in said
    assert seal.seal in said
    assert said.count("{") == said.count("}")


def test_strangers_words_cannot_leave_their_field():
    assert tex("a}\n\\input{x}~^") == (
        r"a\} \textbackslash{}input\{x\}\textasciitilde{}\textasciicircum{}"
    )


def test_a_run_says_how_to_use_its_model_and_what_is_folded_stays_folded(store, tmp_path):
    synthetic.finish(store, synthetic.execution(synthetic.plan()), synthetic.PLAIN)
    build(store, tmp_path / "site")
    name = f"{record.execution_id('1')}.fast.s0"
    page = Page(tmp_path / "site" / "runs" / f"{name}.html")
    assert f"regatta export {name} my-model" in page.text
    assert 'from_pretrained("my-model")' in page.text
    html = page.path.read_text()
    assert len(re.findall("<pre[^>]* data-copy", html)) == 4  # use twice, cite, reproduce
    assert html.index("Training curve") < html.index("Scores") < html.index("Receipt")


def test_a_model_that_was_sent_to_the_hub_is_loaded_from_there(store):
    plan = synthetic.plan()
    trained = {"train/fast,seed=0": plan.steps["train/fast,seed=0"].fingerprint}
    home = synthetic.step("export", 9, {"upload": "lab/fast"}, {"models": trained})
    plan = plan.model_copy(update={"steps": plan.steps | {"home": home}})
    execution = synthetic.execution(plan)
    synthetic.finish(store, execution, synthetic.PLAIN)
    (entry,) = read_lab(store).entries
    runs = {run.arm + str(run.seed): run for run in entry.runs}
    ended = record.Ended(at=synthetic.START, how="finished", steps={
        "home": record.StepEnd(state="made")})  # fmt: skip
    entry = entry.model_copy(update={"ends": {"t1": ended}})
    assert models.of_run(entry, runs["fast0"]).hub == "lab/fast"
    assert models.of_run(entry, runs["fast1"]).hub is None
    lost = runs["fast0"].model_copy(update={"state": "failed", "checkpoint_sha256": None})
    assert models.of_run(entry, lost) is None
