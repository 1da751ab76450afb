"""The public results file, and an audit that finds what was planted and nothing else."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import flops
from engine.config.schema import ModelConfig
from runner.analysis import speedrun_file, speedrun_rows
from runner.analysis.speedrun_file import BadFile, RunInfo

# The public 130M entry: 227,868,672 forward FLOPs a token, 154,147,328 parameters.
CLEAN: dict[str, Any] = {
    "author": {"name": "Ada", "affiliation": "", "url": "https://example.org"},
    "description": "130M, as the starter has it",
    "device_flops": 4.59e14,
    "eval/paloma/c4_en/bpb": 1.17,
    "model_config": {
        "hidden_dim": 512,
        "intermediate_dim": 1792,
        "num_layers": 6,
        "num_heads": 8,
        "num_kv_heads": 8,
        "max_seq_len": 4096,
        "a_knob_of_theirs": {"kept": [1, 2]},
    },
    "train_config": {"train_batch_size": 128, "num_train_steps": 5940, "their_own": "too"},
    "model_flops": 3 * 227_868_672 * 3_114_270_720,
    "model_flops_per_token": 227_868_672.0,
    "model_size": 154_147_328,
    "num_chips": 16,
    "num_devices": 16,
    "resources": {"tpu_type": "v5p-32", "slices": 1},
    "run_completion_timestamp": "2026-01-02 03:04:05 UTC",
    "tokenized_dataset": "tokenized/fineweb-edu-10B",
    "total_tokens": 3_114_270_720,
    "training_hardware_flops": 1000.0 * 16 * 4.59e14,
    "training_time": 1000.0,
    "wandb_run_link": "https://wandb.ai/team/project/runs/abc123",
}


def entry(**changed: Any) -> RunInfo:
    """The clean entry with some fields changed."""
    return RunInfo.model_validate(CLEAN | changed)


def test_a_clean_file_raises_nothing() -> None:
    assert speedrun_file.audit({"ada/130m": entry()}) == []


PLANTED = {
    "utilisation above 1": (
        {"training_hardware_flops": 1.9e18, "training_time": 1.9e18 / 16 / 4.59e14},
        {"utilisation", "peak"},
    ),
    "time × peak below model FLOPs": ({"training_time": 100.0}, {"peak"}),
    "hardware FLOPs that its chips do not make": ({"num_chips": 8}, {"peak"}),
    "more tokens than the data holds": (
        {
            "total_tokens": 31_142_707_200,
            "model_flops": 3 * 227_868_672 * 31_142_707_200,
            "train_config": {"train_batch_size": 128, "num_train_steps": 59_400},
            "training_time": 10_000.0,
            "training_hardware_flops": 10_000.0 * 16 * 4.59e14,
        },
        {"data"},
    ),
    "parameters that do not follow from the shape": ({"model_size": 100_000_000}, {"parameters"}),
    "FLOPs a token of another shape": ({"model_flops_per_token": 2e8}, {"per token"}),
    "fewer model FLOPs than the tokens take": ({"model_flops": 1.0e18}, {"model flops"}),
    "tokens counted at another length than trained": (
        {
            "train_config": {
                "train_batch_size": 128,
                "num_train_steps": 5940,
                "train_seq_len": 1024,
            }
        },
        {"length"},
    ),
    "a loss of nothing": ({"eval/paloma/c4_en/bpb": 0.0}, {"figure"}),
    "a day that there was not": (
        {"run_completion_timestamp": "2026-02-30 03:04:05 UTC"},
        {"figure"},
    ),
    "model FLOPs of a strange model that do not follow from its own figures": (
        {"model_config": {"kind": "ours"}, "model_flops": 1.0e18},
        {"model flops"},
    ),
}


LONG = {
    "total_tokens": 31_142_707_200,
    "model_flops": 3 * 227_868_672 * 31_142_707_200,
    "train_config": {"train_batch_size": 128, "num_train_steps": 59_400},
    "training_time": 10_000.0,
    "training_hardware_flops": 10_000.0 * 16 * 4.59e14,
}
SHAPE: dict[str, Any] = CLEAN["model_config"]
WITH_EXPERTS = SHAPE | {"num_experts": 8, "num_experts_per_tok": 2}
ARTFUL = {
    "the data by another writing": (
        LONG | {"tokenized_dataset": "tokenized/FineWeb-Edu-10B/"},
        {("impossible", "data")},
    ),
    "a shape in text": (
        {"model_config": SHAPE | {"hidden_dim": "512"}, "model_size": 1000},
        {("impossible", "figure")},
    ),
    "a shape in fractions": (
        {"model_config": SHAPE | {"hidden_dim": 512.0}, "model_size": 1000},
        {("impossible", "parameters")},
    ),
    "heads of another width": (
        {"model_config": SHAPE | {"head_dim": 128}},
        {("impossible", rule) for rule in ("parameters", "per token", "model flops")},
    ),
    "two figures below 0": (
        {"train_config": {"train_batch_size": -128, "num_train_steps": -5940}},
        {("impossible", "figure")},
    ),
    "a chip that nobody sells": (
        {"device_flops": 4.59e17, "training_time": 1.0, "training_hardware_flops": 16 * 4.59e17},
        {("odd", "chips")},
    ),
    "a size that only experts explain": (
        {"model_config": WITH_EXPERTS, "model_size": 500_000_000},
        {("odd", "parameters")},
    ),
}


@pytest.mark.parametrize("what", ARTFUL)
def test_a_fault_that_is_written_otherwise_is_found_and_experts_are_accused_of_nothing(
    what: str,
) -> None:
    changed, expected = ARTFUL[what]
    found = speedrun_file.audit({"ada/130m": entry(**changed)})
    assert {(finding.kind, finding.rule) for finding in found} == expected


def test_a_shape_with_what_is_left_to_its_default_is_counted() -> None:
    assert speedrun_file.audit({"it": entry(model_config=SHAPE | {"head_dim": None})}) == []


@pytest.mark.parametrize("what", PLANTED)
def test_the_audit_finds_exactly_the_planted_faults(what: str) -> None:
    changed, rules = PLANTED[what]
    found = speedrun_file.audit({"ada/130m": entry(**changed)})
    assert {finding.rule for finding in found} == rules
    assert {finding.kind for finding in found} == {"impossible"}
    assert rules <= speedrun_file.RULES.keys()


def test_every_rule_for_whole_files_has_a_planted_fault() -> None:
    planted = {rule for _, rules in PLANTED.values() for rule in rules}
    assert planted | {"twice"} == speedrun_file.RULES.keys() - {"chips"}, "chips is odd only"


@pytest.mark.parametrize("size", ["130m", "300m", "520m", "1.2b"])
@pytest.mark.parametrize("utilisation", [0.05, 0.5, 1.0])
def test_clean_files_of_every_public_size_raise_nothing(size: str, utilisation: float) -> None:
    shape = ModelConfig.model_validate(
        {"size": size, "seq_len": 4096, "vocab_size": speedrun_file.VOCABULARY}
    )
    known = shape.model_dump()
    keys = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads")
    tokens = 128 * 3000 * 4096
    taken = flops.model_flops(shape, tokens)
    seconds = taken / utilisation / 16 / 4.59e14
    clean = entry(
        model_config={key: known[key] for key in keys} | {"seq_len": 4096, "theirs": None},
        train_config={"train_batch_size": 128, "num_train_steps": 3000},
        model_flops=taken,
        model_flops_per_token=flops.forward_flops_per_token(shape),
        model_size=flops.parameters(shape),
        total_tokens=tokens,
        training_time=seconds * 1.000001,
        training_hardware_flops=seconds * 1.000001 * 16 * 4.59e14,
    )
    assert speedrun_file.audit({"clean": clean}) == []


def test_a_wandb_run_is_entered_once_however_its_page_is_linked() -> None:
    again = entry(wandb_run_link="http://www.wandb.ai/team/project/runs/abc123/overview?x=1")
    found = speedrun_file.audit({"ada/130m": entry(), "sam/130m": again, "eve/130m": entry()})
    assert [finding.rule for finding in found] == ["twice"] * 3
    assert found[0].words == "it has the same W&B run as sam/130m, eve/130m"
    other = entry(wandb_run_link="https://wandb.ai/team/project/runs/abc1234")
    assert speedrun_file.audit({"ada/130m": entry(), "sam/130m": other}) == []
    assert (
        speedrun_file.audit({"a": entry(wandb_run_link=None), "b": entry(wandb_run_link=None)})
        == []
    )


def test_the_fields_of_public_rows_are_known_and_so_are_those_that_rules_are_about() -> None:
    fields = {field.alias or name for name, field in RunInfo.model_fields.items()}
    assert set(speedrun_file.PUBLIC.values()) <= fields
    assert {rule.field for rule in speedrun_file.RULES.values()} <= fields | {"figures"}


def test_a_file_is_written_with_exactly_the_public_fields() -> None:
    content = json.loads(speedrun_file.write([entry()]))
    assert set(content) == {"runs"}
    assert set(content["runs"][0]) == {"run_info"}
    assert set(content["runs"][0]["run_info"]) == set(CLEAN)
    assert len(CLEAN) == 18


def test_keys_that_nobody_knows_survive_a_round_trip() -> None:
    (back,) = speedrun_file.read(speedrun_file.write(speedrun_file.read(_file(CLEAN))))
    assert back.model == CLEAN["model_config"]
    assert back.train == CLEAN["train_config"]
    assert back.resources == CLEAN["resources"]
    assert back == entry()


def _file(*runs: Any) -> bytes:
    return json.dumps({"runs": [{"run_info": run} for run in runs]}).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 10_000, "not JSON"),
        (b"[]", 'no list "runs"'),
        (b'{"runs": []}', 'no list "runs"'),
        (b'{"runs": [3]}', r'runs\[0\] has no "run_info"'),
        (_file(CLEAN, CLEAN | {"num_chips": 0}), r"runs\[1\]\.run_info\.num_chips"),
        (_file(CLEAN).replace(b'"model_size"', b'"model_size": 1, "model_size"'), "stands twice"),
        (_file(CLEAN | {"surprise": 1}), r"run_info\.surprise"),
        (_file({k: v for k, v in CLEAN.items() if k != "author"}), r"run_info\.author"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_place(content: bytes, words: str) -> None:
    with pytest.raises(BadFile, match=words):
        speedrun_file.read(content)


def test_one_text_by_two_names_is_one_text() -> None:
    def tokens(source: str, validation: str) -> Any:
        config = {"source": source, "tokenizer": "byte", "sha256": {"validation": validation}}
        return SimpleNamespace(do="tokenize", config=config)

    def scored(of: str) -> Any:
        inputs = {"tokens": {of: "its fingerprint"}}
        return SimpleNamespace(do="evaluate", config={"tokens": 64}, inputs=inputs)

    steps = {"a": tokens("a.txt", "0" * 64), "b": tokens("b.txt", "0" * 64)}
    steps |= {"of_a": scored("a"), "of_b": scored("b")}
    plan: Any = SimpleNamespace(data=None, steps=steps)
    found = speedrun_rows.on(plan)
    assert found
    assert (found.text, found.tokenizer) == (("0" * 64, 64), "byte")
    steps["b"] = tokens("b.txt", "1" * 64)
    assert speedrun_rows.on(plan) is None
