"""An experiment becomes a plan: figures, fingerprint, and what a prediction may speak of."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine.data.lab_texts import Text
from runner.lib.problems import BadExperiment
from runner.planning import planned_steps, planner
from runner.publish import step_summary
from runner.schema import plan_fingerprint, record
from runner.schema.record import Person, Plan, Prediction, Preregistration
from runner.spec import declaration as spec_declaration
from runner.store.store import Store
from tests.decided import decide
from tests.pretended import DECLARED, declare
from tests.scenarios.lab import EXPERIMENT, TEXT

FILE = "experiments/warm/experiment.yaml"
FOLDER = "experiments/warm"
SPLIT = Text("text.txt", TEXT[:14_000].encode(), TEXT[14_000:].encode())


def seal(*predictions: Prediction, **changes: Any) -> Preregistration:
    made = Preregistration(
        repository=7,
        issue=1,
        title="Warm",
        hypothesis="Because.",
        predictions=predictions or (prediction("fast", "slow"),),
        author=Person(login="ada", id=11),
        at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        text_sha256="0" * 64,
    )
    return made.model_copy(update=changes)


def prediction(arm: str, versus: str | None = None, expect: str = "< 0") -> Prediction:
    return Prediction(metric="eval/bpb", arm=arm, versus=versus, expect=expect, confidence=0.8)


def plan(
    declaration: str = EXPERIMENT,
    *,
    folder: str = FOLDER,
    text: Text = SPLIT,
    sealed: Preregistration | None = None,
) -> Plan:
    experiment = spec_declaration.parse(declaration, FILE)
    with mock.patch.object(planned_steps, "text", lambda _, source: replace(text, source=source)):
        return planner.make_plan(experiment, Path("no-folder"), called=folder, sealed=sealed)


def changed(was: str, now: str) -> str:
    assert EXPERIMENT.count(was) == 1
    return EXPERIMENT.replace(was, now)


# ── Figures ──────────────────────────────────────────────────────────────────────────────────


def test_a_plan_counts_runs_tokens_and_flops() -> None:
    found = plan()
    assert found.runs() == [(arm, seed) for arm in ("fast", "slow") for seed in (0, 1, 2)]
    arm = found.arms["fast"]
    # 256 × 16 twice; in each of 2 blocks 4 × 16², 3 × 16 × 32 and 2 × 16; the last norm.
    assert arm.parameters == 2 * 4096 + 2 * (1024 + 1536 + 32) + 16
    assert arm.tokens == 16 * 2 * 32
    assert arm.model_flops == 3 * arm.forward_flops_per_token * arm.tokens
    cost = found.cost
    assert (cost.runs, cost.tokens) == (6, 6 * arm.tokens)
    assert cost.model_flops == 6 * arm.model_flops
    assert cost.hardware_flops == (2 * cost.model_flops, 5 * cost.model_flops)
    assert cost.seconds == pytest.approx([flops / 1.92e11 for flops in cost.hardware_flops])
    assert cost.device == "1 × CPU, 2 cores"
    assert found.seal is None
    assert found.predictions == ()


# ── What an approval binds ───────────────────────────────────────────────────────────────────

SAME = {
    "the title": plan(changed("Does a warmer", "Is a warmer")),
    "a comment": plan("# words\n" + EXPERIMENT),
    "a default written out": plan(changed("seq_len: 32", "seq_len: 32, num_kv_heads: 2")),
    "no phases": plan(changed("decay: 0.2", "decay: 0.2, phases: []")),
    "3e-4": plan(changed("0.0003", "3e-4")),
    "the order of the arms": plan(
        EXPERIMENT.partition("  slow")[0] + "  fast: {}\n  slow: {train: {learning_rate: 0.0003}}\n"
    ),
    "the folder": plan(folder="experiments/other"),
}  # fmt: skip
OTHER = {
    "an arm's value": plan(changed("0.0003", "0.0004")),
    "an arm's name": plan(changed("  slow", "  slaw")),
    "one arm more": plan(EXPERIMENT + "  faster: {train: {learning_rate: 1}}\n"),
    "the text": plan(text=Text("text.txt", SPLIT.train + b"!", SPLIT.validation)),
    "the validation text": plan(text=Text("text.txt", SPLIT.train, SPLIT.validation + b"!")),
    "where the text is": plan(changed("text.txt", "other.txt")),
    "the evaluation": plan(changed("tokens: 64", "tokens: 65")),
    "the preregistration": plan(changed("preregistration: 1", "preregistration: 2")),
    "the seeds": plan(changed("[0, 1, 2]", "[0, 1, 3]")),
    "the seeds' order": plan(changed("[0, 1, 2]", "[0, 2, 1]")),
    "the devices": plan(changed("kind: cpu", "kind: h100")),
    "the seal": plan(sealed=seal()),
    "another seal": plan(sealed=seal(hypothesis="Another.")),
    "other predictions": plan(sealed=seal(prediction("fast"))),
    **{
        f"the {section}'s {key}": plan(changed(f"{key}: {was}", f"{key}: {now}"))
        for section, key, was, now in (
            ("model", "hidden_dim", 16, 20),
            ("model", "intermediate_dim", 32, 33),
            ("model", "num_layers", 2, 3),
            ("model", "num_heads", 2, 4),
            ("model", "seq_len", 32, 31),
            ("training", "train_batch_size", 2, 3),
            ("training", "num_train_steps", 16, 17),
            ("training", "warmup", 0.1, 0.2),
            ("training", "decay", 0.2, 0.3),
        )
    },
    **{
        f"{key} that was left out": plan(changed("decay: 0.2", f"decay: 0.2, {key}: {value}"))
        for key, value in (
            ("weight_decay", 0.2), ("beta1", 0.8), ("beta2", 0.9), ("epsilon", 1e-7),
            ("max_grad_norm", 2), ("momentum", "0.9, optimizer: muon"), ("optimizer", "muon"),
            ("newton_schulz", "quintic, optimizer: muon"),
            ("adam_learning_rate", "0.001, optimizer: muon"), ("gradient_accumulation_steps", 2),
            ("z_loss_weight", 1e-4), ("ema_decay", 0.9), ("on_bad_step", "skip"),
            ("checkpoint_every", 2), ("checkpoint_seconds", 60),
            ("keep_checkpoints", 3), ("keep_every", 8), ("phases", "[{at: 8, warmup: 1}]"),
        )
    },
    **{
        f"{key} that was left out": plan(changed("seq_len: 32", f"seq_len: 32, {key}: {value}"))
        for key, value in (
            ("num_kv_heads", 1), ("vocab_size", 257), ("tie_word_embeddings", "true"),
            ("head_dim", 4), ("qk_norm", "rms"), ("sliding_window", 8), ("logit_soft_cap", 30),
            ("rope_theta", 1000), ("norm_epsilon", 1e-6), ("layer_pattern", "[nope, full]"),
            ("last_layer", "nope, layer_pattern: [full]"), ("rope_fraction", 0.5),
            ("attention_gate", "true"), ("exclusive_attention", "true"), ("gated_norm", 4),
            ("short_convolution", 4), ("init", "mup"), ("attention_bias", "qkv"),
            ("norm_position", "after"), ("rope_scaling", "{factor: 8, original_seq_len: 8}"),
        )
    },
    "moe": plan(
        changed(
            "intermediate_dim: 32", "moe: {num_experts: 4, top_k: 2, expert_dim: 8, shared_dim: 16}"
        )
    ),
    "evaluate_every": plan(changed("wsd,", "wsd, evaluate_every: 4,")),
    "keep_moments": plan(changed("num_train_steps: 16", "num_train_steps: 16, keep_moments: true")),
    "skip_batches": plan(changed("num_train_steps: 16", "num_train_steps: 16, skip_batches: 1")),
    "min_lr_ratio": plan(changed("wsd,", "wsd, min_lr_ratio: 0.1,")),
    "cycle": plan(changed("wsd,", "wsd, cycle: 8,")),
    "max_update_sigma": plan(
        changed("num_train_steps: 16", "num_train_steps: 65, max_update_sigma: 4")
    ),
    "spike_sigma": plan(changed("num_train_steps: 16", "num_train_steps: 65, spike_sigma: 4")),
    "phases": plan(changed("wsd,", "wsd, phases: [{at: 8, learning_rate: 0.001}],")),
    "the schedule": plan(
        changed("wsd, warmup: 0.1, decay: 0.2", "cosine, warmup: 0.1")
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_words_do_not_change_the_fingerprint(what: str) -> None:
    assert SAME[what].fingerprint == plan().fingerprint


def test_every_approved_field_changes_the_fingerprint() -> None:
    fingerprints = {what: made.fingerprint for what, made in OTHER.items()}
    fingerprints["nothing"] = plan().fingerprint
    assert len(set(fingerprints.values())) == len(fingerprints)


def test_every_knob_of_model_and_training_is_bound() -> None:
    arm = plan().arms["fast"]
    named = " ".join(OTHER)
    free = {"learning_rate", "lr_schedule"}  # said otherwise
    free |= {"size", "depth", "recipe"}  # names of other keys' values
    for key in {*type(arm.model).model_fields, *type(arm.train).model_fields} - free:
        assert key in named


@pytest.mark.parametrize(
    "made", [plan(), plan(sealed=seal()), plan(EXPERIMENT.replace("cpu", "h100"))], ids=range(3)
)
def test_a_plan_comes_back_from_json_as_it_was(made: Plan) -> None:
    back = Plan.model_validate_json(made.canonical())
    assert back == made
    assert back.canonical() == made.canonical()
    assert list(back.arms) == list(made.arms)
    assert plan_fingerprint.fingerprint(back) == made.fingerprint


def test_a_plan_comes_back_from_the_store_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    planned = record.PlanRecord(
        repository=7,
        pull=2,
        n=1,
        commit="a" * 40,
        at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        plan=plan(sealed=seal()),
    )
    record.write(store, "plans/7/2/1", planned)
    assert record.require(store, "plans/7/2/1", record.PlanRecord) == planned


# ── Predictions and text ─────────────────────────────────────────────────────────────────────


def refused(
    sealed: Preregistration | None = None, text: Text = SPLIT
) -> list[tuple[int, str, str]]:
    with pytest.raises(BadExperiment) as caught:
        plan(sealed=sealed, text=text)
    return [(problem.line, problem.field, problem.message) for problem in caught.value.problems]


def test_a_seal_brings_its_predictions_into_the_plan() -> None:
    sealed = seal(prediction("fast", "slow"), prediction("slow"))
    found = plan(sealed=sealed)
    assert found.seal == sealed.seal
    assert found.predictions == sealed.predictions


def test_a_prediction_about_an_arm_that_is_not_there_is_refused_with_the_near_miss() -> None:
    found = refused(seal(prediction("fsat", "slow"), prediction("fast", "baseline")))
    assert found == [
        (9, "arms", "the preregistration predicts something of the arm `fsat`, which is not here; "
                    "did you mean `fast`?"),
        (9, "arms", "the preregistration predicts something of the arm `baseline`, which is not "
                    "here; declare it"),
    ]  # fmt: skip


def test_a_metric_that_no_step_measures_is_refused_with_the_near_miss() -> None:
    told = {"arm": "fast", "expect": "< 1", "confidence": 0.8}
    metrics = ("weights/output_norms", "eval/docs/bpb", "weights/output_norm")
    found = refused(seal(*(Prediction(metric=metric, **told) for metric in metrics)))
    start = "the preregistration predicts `{0}` of the arm `fast`, and no step measures `{0}`"
    assert found == [
        (9, "arms", f"{start.format(metrics[0])}; did you mean `weights/output_norm`?"),
        (9, "arms", f"{start.format(metrics[1])}; did you mean `eval/bpb`?"),
    ]  # fmt: skip


TRAIN = """\
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 64}
      train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
"""
GRAPH = f"""\
title: Two models
preregistration: 1
resources: {{kind: cpu}}
steps:
  tokens: {{do: tokenize, config: {{source: text.txt}}}}
  fast:
{TRAIN}  slow:
{TRAIN}
  easy:
    do: benchmark
    inputs: {{models: fast, tokens: tokens}}
    config: {{tasks: [cloze], items: 5}}
  hard:
    do: benchmark
    inputs: {{models: slow, tokens: tokens}}
    config: {{tasks: [cloze], items: 9}}
"""


def test_models_that_a_prediction_compares_are_measured_on_the_same_items() -> None:
    told = prediction("fast", "slow").model_copy(update={"metric": "task/cloze/accuracy"})
    with pytest.raises(
        BadExperiment, match=r"`easy` and `hard` measure `task/cloze/accuracy` diff"
    ):
        plan(GRAPH, sealed=seal(told))
    assert plan(GRAPH.replace("items: 9", "items: 5"), sealed=seal(told)).predictions == (told,)


def law(**keys: object) -> Preregistration:
    told = {"metric": "eval/bpb", "expect": "> 0", "confidence": 0.8, "axis": "tokens"}
    return seal(Prediction.model_validate(told | keys))


LADDER = changed(
    "  fast: {}\n",
    "  fast: {}\n"
    + "".join(f"  t{n}: {{train: {{num_train_steps: {n}}}}}\n" for n in (16, 32, 64, 128)),
)


def test_a_law_over_arms_of_several_sizes_is_planned() -> None:
    names = ["t16", "t32", "t64", "t128"]
    assert plan(LADDER, sealed=law(exponent=names)).predictions[0].arms == tuple(names)
    assert plan(LADDER, sealed=law(arm="t128", smaller=names[:3]))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"exponent": ["slow", "fast", "t32", "t64"]},
            "a law over arms of 4 different tokens at least, and `slow` and the others have 3",
        ),
        (
            {"arm": "t32", "smaller": ["t16", "t64", "t128"]},
            "predicts `t32` from smaller arms, and `t64` is not smaller",
        ),
        ({"arm": "fast", "smaller": ["t8", "t16", "t32"]}, "the arm `t8`, which is not here"),
    ],
)
def test_a_law_that_no_run_could_decide_is_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(BadExperiment) as caught:
        plan(LADDER, sealed=law(**keys))
    assert said in str(caught.value.problems[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (Text("text.txt", b"x" * 32, b"y" * 500), "the train split of text.txt has 32 tokens"),
        (Text("text.txt", b"x" * 33, b"y" * 64), "the validation split of text.txt has 64 tokens"),
    ],
)
def test_a_text_that_is_too_short_is_refused_before_anything_runs(text: Text, said: str) -> None:
    ((line, field, message),) = refused(text=text)
    assert (line, field) == (3, "data.source")
    assert said in message
    assert "needs 33" in message or "needs 65" in message


@pytest.mark.parametrize(
    "source", ["../text.txt", "/etc/passwd", "a/../../b", "no.txt", "x" * 5000, "~/text.txt", "."]
)
def test_a_text_outside_the_folder_is_refused_at_its_field(tmp_path: Path, source: str) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "warm").mkdir()
    (tmp_path / "warm" / "experiment.yaml").write_text(changed("text.txt", source))
    with pytest.raises(BadExperiment) as caught:
        planner.plan_folder(tmp_path / "warm")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (3, "data.source")


def test_a_text_of_its_own_is_kept_for_the_job_under_its_digests(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    store = Store(tmp_path / "store")
    made = planner.plan_folder(tmp_path, store)
    folder = planner.kept_folder(made.steps["tokenize"])
    train, validation = (store.require(f"{folder}/{split}") for split in ("train", "validation"))
    assert train + validation == TEXT.encode()
    assert len(validation) == made.data.validation_tokens


def test_a_cost_adds_up_by_the_devices_that_each_step_names(tmp_path: Path) -> None:
    decide(tmp_path, devices="h100: {price: 3.0}\n")
    step = """{do: train, inputs: {tokens: tokens}, resources: {kind: KIND}, config: {
      model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 16},
      train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}}}"""
    (tmp_path / "experiment.yaml").write_text(
        "title: T\nresources: {kind: cpu}\nsteps:\n"
        "  tokens: {do: tokenize, config: {source: stdlib}}\n"
        f"  small: {step.replace('KIND', 'cpu')}\n  large: {step.replace('KIND', 'h100')}\n"
    )
    cost = planner.plan_folder(tmp_path).cost
    each = cost.model_flops / 2
    for kind, peak in (("cpu", 1.92e11), ("h100", 9.89e14)):
        assert cost.device_seconds[kind] == pytest.approx((each / 0.5 / peak, each / 0.2 / peak))
    both = zip(*cost.device_seconds.values(), strict=True)
    assert cost.seconds == pytest.approx([sum(seconds) for seconds in both])
    dollars = [seconds / 3600 * 3.0 for seconds in cost.device_seconds["h100"]]
    assert cost.price == pytest.approx(dollars), "the CPU has no price"
    assert set(cost.device.split(" and ")) == {"1 × CPU, 2 cores", "1 × NVIDIA H100 SXM"}


def test_arms_are_in_natural_order_in_every_plan(tmp_path: Path) -> None:
    arms = "".join(f"  {name}: {{}}\n" for name in ("w128", "w16", "w8", "base"))
    made = plan(EXPERIMENT.partition("arms:")[0] + f"arms:\n{arms}")
    assert list(made.arms) == ["base", "w8", "w16", "w128"]
    assert list(Plan.model_validate_json(made.canonical()).arms) == list(made.arms)
    grid = "sweep: {train.learning_rate: [0.1, 0.02], seed: [10, 9]}"
    declared = DECLARED.partition("    sweep:")[0] + f"    {grid}\n"
    graph = planner.plan_folder(declare(tmp_path / "grid", declared))
    assert [name.partition("/")[2] for name in graph.steps][2:] == [
        "learning_rate=0.02,seed=9",
        "learning_rate=0.02,seed=10",
        "learning_rate=0.1,seed=9",
        "learning_rate=0.1,seed=10",
    ]
    assert list(graph.arms) == ["learning_rate=0.02", "learning_rate=0.1"]
    assert Plan.model_validate_json(graph.canonical()).runs() == graph.runs()


def test_steps_are_in_the_order_of_their_declaration_each_after_its_inputs(tmp_path: Path) -> None:
    steps = (
        "  parts: {do: 'm:f', sweep: {n: [128, 16, 8]}}\n  join: {do: 'm:f', inputs: {x: parts}}\n"
    )
    (tmp_path / "m.py").write_text("def f(config, inputs, out): ...\n")
    head = "title: Parts\nresources: {kind: cpu}\nsteps:\n"
    (tmp_path / "experiment.yaml").write_text(head + steps)
    found = step_summary.ordered(planner.plan_folder(tmp_path).steps)
    assert list(found) == ["parts/n=128", "parts/n=16", "parts/n=8", "join"]


# ── What one has made, others need not ───────────────────────────────────────────────────────────


def fingerprints(declared: str) -> dict[str, tuple[str, str]]:
    return {name: (step.store, step.fingerprint) for name, step in plan(declared).steps.items()}


@pytest.mark.parametrize(
    "more",
    [changed("[0, 1, 2]", "[0, 1, 2, 3]"), EXPERIMENT + "  faster: {train: {warmup: 0.2}}\n"],
)
def test_one_more_seed_or_arm_is_all_that_is_trained_anew(more: str) -> None:
    before, after = fingerprints(EXPERIMENT), fingerprints(more)
    trained = {name for name in before if name.startswith("train/")}
    assert len(trained) == 6
    for name in (*trained, "tokenize"):
        assert after[name] == before[name]
    assert after["evaluate"] != before["evaluate"], "it scores more models"
    new = set(after) - set(before)
    assert new
    assert all(("seed=3" in name) != ("faster" in name) for name in new)


def test_two_experiments_with_an_arm_in_common_train_it_once() -> None:
    other = changed("Does a warmer", "Is another title with another").replace("slow", "baseline")
    other = other.replace("0.0003", "0.0002").replace("fast", "warm")
    mine, theirs = fingerprints(EXPERIMENT), fingerprints(other)
    assert mine["train/fast,seed=1"] == theirs["train/warm,seed=1"]
    assert mine["train/slow,seed=1"] != theirs["train/baseline,seed=1"]
