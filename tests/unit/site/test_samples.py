"""What a model said is on its run's page: escaped, prompt and completion distinguished."""

import json
import re

from bot.site.facts.entries import read_entry
from bot.site.pages import runs
from bot.site.pages.build import build
from runner.store import artifacts
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import EVIL

LABEL = "fast,seed=0"


def executed(store: Store, *lines: object) -> str:
    """A finished execution with a step `samples` that left these lines. Returns its id."""
    plan = synthetic.plan()
    models = plan.steps["evaluate"].inputs["models"]
    step = plan.steps["evaluate"].model_copy(
        update={"do": "generate", "store": "generate", "fingerprint": synthetic.sha("samples")}
    )
    assert f"train/{LABEL}" in models
    execution = synthetic.execution(
        plan.model_copy(update={"steps": {**plan.steps, "samples": step}})
    )

    def write(out):
        text = "".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines)
        (out / "completions.jsonl").write_text(text)

    artifacts.make(store, step.store, step.fingerprint, write, {}, by=execution.id)
    synthetic.finish(store, execution, synthetic.PLAIN)
    return execution.id


def line(**fields):
    said = {"model": LABEL, "prompt": "def ", "seed": 0, "completion": "f():", "tokens": 4}
    return {**said, "logprob": -2.5, "ended": "length", **fields}


def page(store: Store, execution: str, site) -> str:
    build(store, site)
    entry = read_entry(store, execution)
    [name] = [name for name in entry.names if ".fast.s0" in name]
    return (site / "runs" / f"{name}.html").read_text()


def test_prompt_and_completion_are_told_apart_and_another_models_are_elsewhere(tmp_path):
    store = Store(tmp_path / "store")
    execution = executed(store, line(), line(model="other,seed=0", completion="not mine"))
    text = page(store, execution, tmp_path / "site")
    assert '<strong class="prompt">def </strong><span class="completion">f():</span>' in text
    assert "The prompts were chosen before the run." in text
    assert "ended by its length" in text
    assert "not mine" not in text


def test_what_a_model_said_cannot_become_a_part_of_the_page(tmp_path):
    store = Store(tmp_path / "store")
    said = EVIL + "</pre><script>alert(1)</script>\x1b[31m\u202e"
    text = page(store, executed(store, line(prompt=said, completion=said)), tmp_path / "site")
    [sample] = re.findall(r'<pre class="log"[^>]*aria-label="Sample 1">(.*?)</pre>', text, re.S)
    assert "<script" not in sample
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m\\u202e" in sample


def test_of_many_samples_the_first_are_shown_and_the_rest_counted(tmp_path):
    store = Store(tmp_path / "store")
    many = [line(prompt=f"p{n} ", completion="c" * 9_000) for n in range(runs.MAX_SAMPLES + 3)]
    text = page(store, executed(store, *many), tmp_path / "site")
    assert text.count('class="prompt"') == runs.MAX_SAMPLES
    assert "has 3 more" in text
    assert "c" * runs.MAX_SAMPLE not in text


def test_an_output_that_is_no_samples_is_rejected_with_its_reason(tmp_path):
    store = Store(tmp_path / "store")
    text = page(store, executed(store, "[" * 5_000), tmp_path / "site")
    assert "Rejected: samples, completions.jsonl" in text
    assert 'class="prompt"' not in text


def test_a_run_without_samples_has_no_such_section(tmp_path):
    store = Store(tmp_path / "store")
    execution = synthetic.execution(synthetic.plan())
    synthetic.finish(store, execution, synthetic.PLAIN)
    assert 'id="samples"' not in page(store, execution.id, tmp_path / "site")
