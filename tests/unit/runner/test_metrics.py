"""Metrics: their names, units and directions, and which of them a graph of steps measures."""

from runner.publish import step_summary
from runner.schema import metrics
from runner.spec import benchmarks, measured
from tests import synthetic
from tests.synthetic import sha


def test_a_name_has_parts_and_says_unit_and_direction() -> None:
    for name in ("eval/bpb", "eval/python_docs/bpb", "task/lexical/accuracy_norm", "weights/x.y-z"):
        assert metrics.wrong(name) == ""
    for name in ("", "bpb", "eval/", "/bpb", "Eval/bpb", "eval/b p", "eval//bpb", "eval/bpb\n"):
        assert "is not a metric" in metrics.wrong(name), name
    assert "longer than 80" in metrics.wrong("a/" + "b" * 79)
    assert metrics.better("eval/a/bpb") == metrics.better("eval/loss") == "lower"
    for what in ("accuracy", "accuracy_norm", "exact_match", "pass_at_1", "choice_prob_norm"):
        assert metrics.better(f"task/x/{what}") == "higher"
    for what in ("f1", "bleu", "exact_match.flexible-extract"):
        assert metrics.better(f"task/x/{what}") == "higher"
    assert metrics.better("task/x/word_perplexity") == "lower"
    assert metrics.words("task/x/exact_match.strict") == (
        "share of answers that match exactly, read by strict on the benchmark `x`; higher is better"
    )
    assert metrics.better("weights/output_norm") is None
    long = metrics.of_task("bbq-0shot", "disamb_bias_score_" + 60 * "x")
    assert metrics.wrong(long) == ""
    assert long != metrics.of_task("bbq-0shot", "disamb_bias_score_" + 61 * "x")
    assert metrics.words("eval/docs/bpb") == (
        "bits per byte on `docs` in the validation text; lower is better"
    )


def test_a_score_at_chance_is_one_whose_interval_includes_guessing() -> None:
    score = metrics.Score(value=0.27, chance=0.25)
    assert metrics.at_chance(score, (0.24, 0.30))
    assert not metrics.at_chance(score, (0.26, 0.28))
    assert not metrics.at_chance(metrics.Score(value=0.27), (0.0, 1.0))


def test_a_task_of_the_lab_says_what_it_asks_and_each_task_of_the_lab_does() -> None:
    asked = metrics.asks(["eval/bpb", "task/cloze/bpb", "task/cloze/accuracy", "task/mine/bpb"])
    assert asked == {"cloze": "which of four words of the same length follows"}
    assert metrics.ASKS.keys() == set(benchmarks.OF_THE_LAB)


def test_a_receipt_has_names_for_people_and_nothing_that_says_nothing() -> None:
    said = {"affinity": "0,1", "driver": "cpu", "platform": "cpu", "xla_flags": "", "jax": "0.10.2"}
    assert step_summary.receipt(said) == {
        "IDs of the CPU cores": "0,1",
        "platform": "cpu",
        "jax": "0.10.2",
    }
    assert "driver" in step_summary.receipt({"driver": "CUDA 13", "platform": "gpu"})


def test_a_value_that_is_not_finite_is_no_score() -> None:
    assert metrics.score(float("nan")) is None
    written = metrics.written({"a": {"eval/bpb": None, "weights/x": metrics.score(2.0)}})
    assert written == (
        b'{"a":{"weights/x":{"chance":null,"items":null,"standard_error":null,"value":2.0}}}\n'
    )


def test_what_a_plan_measures_is_known_before_it_runs() -> None:
    plan = synthetic.plan(seeds=(0,))
    assert measured.of_graph(plan.steps) == {
        f"train/{arm},seed=0": ("eval/bpb", "weights/output_norm") for arm in ("slow", "fast")
    }


def test_the_parts_of_a_mixture_are_measured_and_weights_of_own_models_are_not() -> None:
    steps = dict(synthetic.plan(seeds=(0,)).steps)
    given = {"docs": {"tokenize": sha("a")}, "code": {"tokenize": sha("b")}}
    steps["mix"] = synthetic.step("mix", 1, {"weights": {"docs": 1.0, "code": 2.0}}, given)
    scored = steps["evaluate"]
    inputs = {**scored.inputs, "tokens": {"mix": steps["mix"].fingerprint}}
    steps["evaluate"] = scored.model_copy(update={"inputs": inputs, "own": ("net:Net",)})
    name, own = "train/fast,seed=0", {"model": "net:Net"}
    trained = steps[name]
    steps[name] = trained.model_copy(update={"config": {**trained.config, "own": own}})
    parts = ("eval/bpb", "eval/docs/bpb", "eval/code/bpb")
    assert measured.of_graph(steps) == {
        "train/slow,seed=0": (*parts, "weights/output_norm"),
        name: parts,
    }


def test_what_own_code_computes_is_no_score() -> None:
    steps = synthetic.plan(seeds=(0,)).steps
    mine = steps["evaluate"].model_copy(update={"do": "score:mine", "own": ("score:mine",)})
    assert measured.of_graph({**steps, "evaluate": mine}) == {}


def test_of_an_imported_model_the_same_is_measured() -> None:
    steps = dict(synthetic.plan(seeds=(0,)).steps)
    steps["import"] = synthetic.step("import", 9, {}, {})
    given = {"models": {"import": sha("x")}, "tokens": {"tokenize": sha("y")}}
    steps["evaluate"] = synthetic.step("evaluate", 10, {"tokens": 64}, given)
    assert measured.of_graph(steps) == {"import": ("eval/bpb", "weights/output_norm")}
