"""Stories of experiments that declare steps: planned in the thread, run by the lab where they are
made of its own code alone, and refused in words where they bring code of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.site.pages import build
from runner.isolation import bubblewrap
from runner.lib import redact
from runner.planning import lockfile, planner
from runner.publish import charts
from runner.schema import step_graph
from runner.schema.job_reports import AttemptReport
from runner.schema.record import Isolated
from runner.store.store import Store
from runner.worker import executor
from tests.scenarios.lab import READING, Lab, a_lab, form_body
from tests.stub_trainer import StubJob, StubRay, put_report
from tests.system.scenarios.test_story import PIXEL, bpb, executions, tell

FOLDER = "experiments/wide-or-deep"
BUILT_IN = """\
title: Is a warmer learning rate better, in steps?
preregistration: 1
resources: {kind: cpu}
steps:
  tokens:
    do: tokenize
    config: {source: stdlib}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, seq_len: 32}
      train: {train_batch_size: 2, num_train_steps: 16, learning_rate: 0.003}
    sweep:
      - {name: slow, train.learning_rate: 0.0003}
      - {name: fast}
    seeds: [0, 1]
  evaluate:
    do: evaluate
    inputs: {models: train, tokens: tokens}
    config: {tokens: 64}
"""
FAST_IS_BETTER = """\
- metric: eval/bpb
  arm: fast
  expect: "< 2.5"
  confidence: 80 %
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path) as lab:
        yield lab


@pytest.fixture
def slow_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        yield lab


def proposed(lab: Lab, files: dict[str, str], branch: str = "steps") -> int:
    """Ada opens a pull request with these files of an experiment's folder."""
    content = {f"{FOLDER}/{name}": text.encode() for name, text in files.items()}
    lab.sandbox.commit("ada", branch, content, "Declare steps")
    pull = lab.sandbox.open_pull("ada", "Steps", "Tests #1.", branch)
    lab.settle()
    lab.clock.advance(READING)
    return pull.number


def shipped() -> dict[str, str]:
    """The five-step experiment that lies in the repository."""
    here = Path(__file__).parents[3] / FOLDER
    return {path.name: path.read_text() for path in here.iterdir() if path.is_file()}


def test_steps_are_planned_run_and_judged_in_the_thread(lab: Lab) -> None:
    lab.preregister(form_body(predictions=FAST_IS_BETTER))
    pull = proposed(lab, {"experiment.yaml": BUILT_IN})
    plan = lab.last(pull)
    assert "**6 steps** (6 to run)" in plan
    assert "| `train/fast,seed=0` | `train` | tokens | new |\n" in plan  # and no empty reason
    assert "`new`: no execution has run this step yet" in plan
    assert 's0["tokens<br>tokenize"]' in plan
    assert "\n/run " in plan
    lab.say("grace", pull, "/run")
    result = lab.last(pull)
    assert result.startswith("## ✅ `fast` scores **2.405 bits per byte**")
    assert "| `fast` | 2.4050 ± 0.0071 | 2.4000, 2.4100 |" in result
    assert "| `evaluate` | done |" in result
    scored = {"fast.s0": 2.4, "fast.s1": 2.41, "slow.s0": 3.2, "slow.s1": 3.21}
    assert bpb(lab) == pytest.approx(scored)


def test_scores_of_steps_are_on_the_leaderboard_and_each_step_on_its_page(
    lab: Lab, tmp_path: Path
) -> None:
    lab.preregister(form_body(predictions=FAST_IS_BETTER))
    lab.say("grace", proposed(lab, {"experiment.yaml": BUILT_IN}), "/run")
    (execution,) = executions(lab)
    build.build(lab.store, tmp_path / "site")
    index = (tmp_path / "site" / "index.html").read_text()
    assert "Bits per byte on wide-or-deep, tokens" in index
    assert "2.4050 ± 0.0071" in index
    page = (tmp_path / "site" / "executions" / execution / "index.html").read_text()
    assert "<code>train/fast,seed=1</code>" in page
    assert page.count("<td>made</td>") == 6


def test_a_second_plan_says_what_is_cached_and_what_has_changed_and_why(lab: Lab) -> None:
    lab.preregister(form_body(predictions=FAST_IS_BETTER))
    lab.say("grace", proposed(lab, {"experiment.yaml": BUILT_IN}), "/run")
    warmer = BUILT_IN.replace("0.0003", "0.001")
    plan = lab.last(proposed(lab, {"experiment.yaml": warmer}, "warmer"))
    assert "**6 steps** (3 cached, 3 to run) · 2 training runs, " in plan
    row = "| `train/slow,seed=0` | `train` | tokens | changed |"
    assert f"{row} train.learning\\_rate 0.0003 → 0.001 |" in plan
    assert "input models: train/slow,seed=0, train/slow,seed=1 changed" in plan
    again = lab.last(proposed(lab, {"experiment.yaml": BUILT_IN}, "again"))
    assert "**6 steps** (6 cached) · all cached: nothing to run\n" in again


def test_while_steps_are_made_the_status_says_how_many_are_there(slow_lab: Lab) -> None:
    lab = slow_lab
    lab.preregister(form_body(predictions=FAST_IS_BETTER))
    pull = proposed(lab, {"experiment.yaml": BUILT_IN})
    tell(lab, "grace", pull, "/run")
    lab.trainer.advance(1 + 16 + 1)  # the text, one of the four runs, and a step of the next
    lab.look(30)
    status = next(body for body in lab.comments(pull) if "Running the steps" in body)
    assert "2 of 6 steps" in status
    assert "| `tokens` | done |" in status
    tell(lab, "grace", pull, "/status")
    assert "| running | 2 of 6 steps |" in lab.last(pull)
    lab.trainer.finish()
    lab.settle()
    assert lab.last(pull).startswith("## ✅ ")


def test_an_alias_that_would_mean_something_else_stops_the_run_and_says_why(lab: Lab) -> None:
    lab.preregister(form_body(predictions=FAST_IS_BETTER))
    named = BUILT_IN.replace("    do: tokenize\n", "    do: tokenize\n    as: stdlib-2026-11\n")
    pull = proposed(lab, {"experiment.yaml": named})
    assert "| `tokens` as `stdlib-2026-11` | `tokenize` |" in lab.last(pull)
    lab.say("grace", pull, "/run")
    (begun,) = executions(lab)
    told = lab.records(f"executions/{begun}")["execution.json"]
    assert (len(told["source"]["tree"]), len(told["lab"]["code_sha256"])) == (40, 64)
    other = named.replace("source: stdlib", "source: stdlib, tokenizer: bpe, vocab_size: 300")
    other = other.replace("seq_len: 32}", "seq_len: 32, vocab_size: 300}")
    pull = proposed(lab, {"experiment.yaml": other}, "other")
    plan = lab.last(pull)
    assert "**This plan cannot start:** an alias would change its meaning." in plan
    assert "`tokens`: tokenizer byte → bpe" in plan
    lab.say("grace", pull, "/run")
    assert "would change what `stdlib-2026-11` means" in lab.last(pull)
    assert executions(lab) == [begun]


def test_own_code_is_planned_from_the_commit_and_its_run_is_refused_in_words(lab: Lab) -> None:
    pull = proposed(lab, shipped())
    plan = lab.last(pull)
    assert "**6 steps** (6 to run)" in plan
    own = "The experiment has its own Python code (`compare`, `prepare`)"
    assert f"**This plan cannot start here.** {own}" in plan
    lab.say("grace", pull, "/run")
    refusal = lab.last(pull)
    assert "**Not done:**" in refusal
    assert "You can run it on yours: `regatta run experiments/wide-or-deep`" in refusal
    assert not lab.records("executions")


def really_made(job: StubJob) -> None:
    """Make the steps as `runner.worker.executor` does, but one after another and without a Ray."""
    store, spec = Store(job.root), job.spec
    execution = spec.attempt.rpartition(".")[0]
    code = store.local(planner.code_folder(spec.plan))
    if spec.plan.compiled:
        lockfile.check(code, isolated=spec.isolation == "bubblewrap")
    for name in step_graph.order({name: step.needs for name, step in spec.plan.steps.items()}):
        terms = executor.Terms(spec.isolation)
        executor.make(store, name, spec.plan.steps, spec.plan.kinds, code, execution, terms=terms)


OWN_STEP = "title: T\nresources: {kind: cpu}\nsteps:\n  a: {do: own:step}\n"
OWN = "def step(config, inputs, out): (out / 'a.txt').write_text('a')\n"


@pytest.mark.parametrize(
    ("isolation", "said", "receipt"),
    [
        ("bubblewrap", "(`a`) would run in isolation (bubblewrap), without network", "bubblewrap "),
        ("trusted", "(`a`) would run without isolation", "none: the operator trusts"),
    ],
)
def test_own_code_of_an_approved_plan_runs_in_what_the_plan_said(
    tmp_path: Path, isolation: Isolated, said: str, receipt: str
) -> None:
    if isolation == "bubblewrap" and (words := bubblewrap.probe()):
        pytest.skip(f"nothing was isolated, and so not tested: {words}")
    with a_lab(tmp_path, trainer := StubRay(), isolation=isolation) as lab:
        trainer.make_steps = really_made
        pull = proposed(lab, {"experiment.yaml": OWN_STEP, "own.py": OWN})
        assert said in lab.last(pull)
        assert "\n/run " in lab.last(pull)
        assert not lab.records("executions")
        lab.say("grace", pull, "/run")
        assert "| `a` | done |" in lab.last(pull)
        found = lab.records("executions")
        begun = next(one for path, one in found.items() if path.endswith("/execution.json"))
        assert begun["isolation"] == isolation
        ended = next(one for path, one in found.items() if path.endswith("ended.json"))
        assert ended["steps"]["a"]["receipt"]["isolation"].startswith(receipt)


def test_a_held_secret_that_a_job_quotes_is_on_no_page_and_in_no_record(tmp_path: Path) -> None:
    def tell(job: StubJob) -> None:
        why = f"KeyError: {secret}, or {secret.encode().hex()}"
        put_report(job.out / "failed.json", AttemptReport(nonce=job.spec.nonce, why=why))

    redact.hold(secret := "ghs_of-a-held-installation")
    try:
        with a_lab(tmp_path, trainer := StubRay(), isolation="trusted") as lab:
            trainer.make_steps = tell
            pull = proposed(lab, {"experiment.yaml": OWN_STEP, "own.py": OWN})
            lab.say("grace", pull, "/run")
            assert "KeyError: " in lab.last(pull)
            shown = [*lab.comments(pull), *map(str, lab.records("executions").values())]
            assert not [page for page in shown if secret in page or secret.encode().hex() in page]
    finally:
        redact.forget()


def test_a_declaration_in_python_is_compiled_again_in_isolation(tmp_path: Path) -> None:
    if words := bubblewrap.probe():
        pytest.skip(f"nothing was isolated, and so not tested: {words}")
    trap = Path(__file__).parents[2] / "traps" / "compiled"
    files = {path.name: path.read_text() for path in trap.iterdir() if path.is_file()}
    (tmp_path / "here").mkdir()
    for name, text in files.items():
        (tmp_path / "here" / name).write_text(text)
    files["experiment.lock.yaml"] = lockfile.compiled(tmp_path / "here", isolated=True)
    with a_lab(tmp_path, trainer := StubRay(), isolation="bubblewrap") as lab:
        trainer.make_steps = really_made
        pull = proposed(lab, files)
        lab.say("grace", pull, "/run")
        assert "| `a` | done |" in lab.last(pull)


def test_a_python_declaration_is_read_from_its_lock_and_not_run(lab: Lab, tmp_path: Path) -> None:
    files = shipped()
    declared = files.pop("experiment.yaml").partition("title:")
    files["experiment.py"] = "raise SystemExit('run!')\n"
    (tmp_path / "experiment.py").write_text(files["experiment.py"])
    files["experiment.lock.yaml"] = "".join([lockfile._source(tmp_path), *declared[1:]])
    plan = lab.last(proposed(lab, files))
    assert "**6 steps** (6 to run)" in plan
    files["experiment.py"] += "x = 1\n"
    stale = {f"{FOLDER}/{name}": text.encode() for name, text in files.items()}
    lab.sandbox.commit("ada", "stale", stale, "Edited")
    pull = lab.sandbox.open_pull("ada", "Edited", "", "stale")
    lab.settle()
    words = (
        "it was not made from experiment.py and its imports as they are now; run `regatta compile"
    )
    assert f"{FOLDER}/experiment.lock.yaml, line 1: {words} {FOLDER}`" in lab.last(pull.number)
    files.pop("experiment.lock.yaml")
    lab.sandbox.commit("ada", "unlocked", {f"{FOLDER}/experiment.py": b"x = 1\n"}, "No lock")
    pull = lab.sandbox.open_pull("ada", "No lock", "", "unlocked")
    lab.settle()
    assert "`regatta compile experiments/wide-or-deep` makes it" in lab.last(pull.number)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("def documents(:\n", "prepare.py cannot be read as Python"),
        ("x = " + "(" * 3000 + ")" * 3000, "prepare.py cannot be read as Python"),
        ("def documents():\n    return 0x" + "f" * 9000, "takes 0 parameters"),
        ("x = 1\n", f"`{FOLDER}` has no `documents` in a module `prepare`"),
    ],
)
def test_own_code_that_cannot_be_followed_is_a_problem_of_the_plan(
    lab: Lab, module: str, words: str
) -> None:
    pull = proposed(lab, shipped() | {"prepare.py": module})
    assert "this cannot run yet" in lab.last(pull)
    assert words in lab.last(pull)
    assert "/tmp" not in lab.last(pull)


def test_a_binary_beside_own_code_is_a_problem_of_the_plan(lab: Lab) -> None:
    pull = proposed(lab, shipped() | {"fast.so": "x", "data/words.zip": "x"})
    assert "`fast.so` is code that cannot be read as Python's source" in lab.last(pull)
    pull = proposed(lab, shipped() | {f"{'x' * 300}.so": "x"}, "long")
    assert "no file can have this name" in lab.last(pull)


def test_two_steps_that_train_what_is_called_the_same_are_a_problem(lab: Lab) -> None:
    again = BUILT_IN.partition("  evaluate:")[0].partition("  train:")[2]
    both = BUILT_IN.replace("  evaluate:", f"  again:{again}  evaluate:")
    lab.preregister(form_body(predictions=FAST_IS_BETTER))
    plan = lab.last(proposed(lab, {"experiment.yaml": both}))
    words = "what `again/fast,seed=0` trains would be called `fast`, as what `train/fast,seed=0` "
    assert f"{words}trains is, and has the same seed" in plan
    lab.clock.advance(1)
    wider = "{name: 'fast,seed=1', seed: 1, model.hidden_dim: 32}"
    unlike = BUILT_IN.replace(
        "      - {name: fast}\n    seeds: [0, 1]",
        f"      - {{name: 'fast,seed=0'}}\n      - {wider}",
    )
    plan = lab.last(proposed(lab, {"experiment.yaml": unlike}, "unlike"))
    assert "differs in more than the seed" in plan
