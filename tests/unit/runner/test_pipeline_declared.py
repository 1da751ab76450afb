"""A pipeline in a declaration: what the plan says of it, and what is refused."""

from pathlib import Path

import pytest

from runner.lib import paths
from runner.lib.problems import BadExperiment
from runner.planning import mesh_words, planner
from runner.schema.record import Plan

DECLARED = """\
title: In stages
data: {source: stdlib, tokenizer: byte}
model: {hidden_dim: 64, intermediate_dim: 128, num_layers: 4, num_heads: 4, seq_len: 64}
train: {train_batch_size: 16, num_train_steps: 8, learning_rate: 0.003,
  gradient_accumulation_steps: 4}
compute: {mesh: {pipeline: 2}}
resources: {kind: cpu, count: 2}
"""


def planned(at: Path, *changes: tuple[str, str]) -> Plan:
    text = DECLARED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (at / "experiment.yaml").write_text(text)
    return planner.plan_folder(at)


def test_the_plan_says_schedule_bubble_memory_by_stage_and_why(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    [step] = [step for step in plan.steps.values() if step.do == "train"]
    assert step.config["compute"]["mesh"]["pipeline"] == 2
    assert step.config["compute"]["schedule"] == "zero-bubble"
    how, holds = mesh_words.told(plan)
    assert how == (
        "Pipeline: 2 stages of 2 layers, schedule zero-bubble, chosen: the fastest of those that "
        "fit (interleaved 16 %, 1f1b 24 %, gpipe 24 %). Expected bubble: stages wait 15.4 % of a "
        "step of 4 parts, by FLOPs and not measured"
    )
    assert holds.startswith("Memory by stage, of a device, by formula: stage 0 ")
    assert holds.count("activations") == 2
    longer = planned(tmp_path, ("{pipeline: 2}}", "{pipeline: 2}, schedule: 1f1b}"))
    assert "as declared. Expected bubble: stages wait 23.6 % " in mesh_words.told(longer)[0]
    assert mesh_words.told(longer)[0].endswith("more `gradient_accumulation_steps` make it shorter")


def test_a_mesh_inside_of_each_stage_is_chosen_or_declared(tmp_path: Path) -> None:
    four = planned(tmp_path, ("count: 2", "count: 4"))
    assert mesh_words.told(four)[0].endswith(
        ": data 2 in each stage, chosen: each device has a copy of the model, which fits"
    )
    fsdp = planned(tmp_path, ("count: 2", "count: 4"), ("pipeline: 2", "pipeline: 2, fsdp: 2"))
    assert mesh_words.told(fsdp)[0].endswith(": fsdp 2 in each stage, as declared")
    large = planned(
        tmp_path,
        ("kind: cpu, count: 2", "kind: h100, count: 16"),
        ("hidden_dim: 64, intermediate_dim: 128, num_layers: 4, num_heads: 4, seq_len: 64",
         "hidden_dim: 4096, intermediate_dim: 14336, num_layers: 32, num_heads: 32, seq_len: 4096"),
        ("train_batch_size: 16", "train_batch_size: 128"),
        ("gradient_accumulation_steps: 4", "gradient_accumulation_steps: 16"),
    )  # fmt: skip
    on, how, holds, all_of_it, use, _ = mesh_words.told(large)
    assert on.startswith("Mesh on 16 × ")
    assert "in each stage" in on
    assert "2 stages of 16 layers" in how
    assert holds.count("GiB") == 4
    assert "does not fit" not in all_of_it
    assert use.startswith("MFU assumed")


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ("pipeline: 2", "pipeline: 8", "compute.mesh",
         "pipeline 8 has more stages than num_layers 4; write pipeline: 1 or 2 or 4"),
        ("pipeline: 2", "pipeline: 3", "compute.mesh",
         "pipeline 3 does not divide num_layers 4; write pipeline: 1 or 2, or make num_layers a "
         "multiple of 3"),
        ("count: 2", "count: 3", "compute.mesh",
         "pipeline 2 with 1 device in each stage needs 2 devices, and count is 3; write count: 2"),
        ("count: 2", "count: 1", "compute.mesh", "needs 2 devices, and count is 1"),
        ("seq_len: 64", "seq_len: 64, layer_pattern: [full, linear, full]", "compute.mesh",
         "make these unlike each other; make each stage whole periods"),
        ("seq_len: 64", "seq_len: 64, tie_word_embeddings: true", "model.tie_word_embeddings",
         "the embedding is on the first and the last stage of a pipeline; write false"),
        ("intermediate_dim: 128", "moe: {num_experts: 4, top_k: 2, expert_dim: 32}",
         "compute.mesh", "a mixture of experts has no pipeline so far"),
        ("num_train_steps: 8", "num_train_steps: 80, max_update_sigma: 2", "train.max_update_sigma",
         "remove it, or write pipeline: 1"),
        ("{pipeline: 2}", "{pipeline: 2}, schedule: interleaved", "", ""),
        ("{mesh: {pipeline: 2}}", "{mesh: {pipeline: 4}, schedule: interleaved}",
         "compute.schedule", "needs 2 × 4 groups of alike layers, and num_layers is 4"),
        ("{mesh: {pipeline: 2}}", "{mesh: {data: 2}, schedule: 1f1b}", "compute.schedule",
         "is for the stages of a pipeline; write `mesh: {pipeline: 2}`, or remove it"),
        ("accumulation_steps: 4}\ncompute: {mesh: {pipeline: 2}}",
         "accumulation_steps: 1}\ncompute: {mesh: {pipeline: 2}, schedule: interleaved}",
         "compute.schedule", "write gradient_accumulation_steps: 2, or schedule: 1f1b"),
        ("count: 2", "count: 2, slices: 2", "compute.mesh",
         "a pipeline is inside of one slice so far; write slices: 1, not 2"),
        ("train_batch_size: 16", "train_batch_size: 10", "train.gradient_accumulation_steps", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_into_stages_is_refused_with_a_remedy(
    tmp_path: Path, old: str, new: str, field: str, words: str
) -> None:
    changes = [(old, new)]
    if "pipeline: 4" in new:
        changes.append(("count: 2", "count: 4"))
    if not field:
        assert planned(tmp_path, *changes)
        return
    with pytest.raises(BadExperiment) as refused:
        planned(tmp_path, *changes)
    assert f"`{field}`" in str(refused.value)
    assert words in str(refused.value)


def test_own_code_is_not_cut_into_stages(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def model(config):\n    return None\n")
    with pytest.raises(BadExperiment, match="write `pipeline: 1`"):
        planned(
            tmp_path,
            ("resources", "own: {model: 'own:model'}\nresources"),
            ("count: 2", "count: 1"),
        )


def test_trials_of_a_search_are_not_cut_into_stages(tmp_path: Path) -> None:
    head, _, config = DECLARED.replace("count: 2", "count: 1").partition("data: ")
    lines = [line for line in config.splitlines()[1:] if not line.startswith("resources")]
    lines.append("search: {trials: 12, seeds: [100, 101], times: {learning_rate: [0.5, 1, 2]}}")
    steps = "steps:\n  tokens: {do: tokenize, config: {source: stdlib}}\n  search:\n"
    steps += "    do: tune\n    inputs: {tokens: tokens}\n    config:\n"
    below = "\n".join(f"      {line}" for line in lines)
    text = f"{head}resources: {{kind: cpu}}\n{steps}{below}\n"
    (tmp_path / "experiment.yaml").write_text(text)
    with pytest.raises(
        BadExperiment, match="trials train on one device so far; write `pipeline: 1"
    ):
        planner.plan_folder(tmp_path)


def test_the_code_of_a_pipeline_counts_for_steps_that_have_one_and_for_no_other(
    tmp_path: Path,
) -> None:
    def codes(plan: Plan) -> dict[str, dict[str, str]]:
        return {step.do: dict(step.code) for step in plan.steps.values()}

    staged, whole = (
        codes(planned(tmp_path)),
        codes(planned(tmp_path, ("{pipeline: 2}", "{data: 2}"))),
    )
    assert staged["evaluate"] == whole["evaluate"]
    assert staged["train"] != whole["train"]
    from runner.lib import lab_code
    from runner.spec.step_types import parts_of

    reached = lab_code.reached(parts_of("regatta.train"), Path(paths.LAB))
    assert not {"Pipeline", "StagedMesh", "simulate"} & reached.keys()
