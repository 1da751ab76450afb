"""Mixtures and phases as steps: declared, made, trained on across a phase, and scored."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.config.schema import TrainConfig
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore, WrongTokens
from engine.data.tokenize import train_bpe
from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.spec import declaration
from runner.spec.training_steps import Train
from runner.store import digests
from runner.worker.models import train as training
from runner.worker.texts.mix import mix
from runner.worker.texts.mixtures import parts_of, sampler
from runner.worker.texts.tokens import tokenize

SONGS = {
    "web": "row, row, row your boat gently down the stream\n",
    "code": "for row in rows: row(boat, stream.down(gently))\n",
    "clean": "merrily merrily merrily merrily life is but a dream\n",
}
MODEL = {"hidden_dim": 8, "intermediate_dim": 16, "num_layers": 1, "num_heads": 2, "seq_len": 16}
SCHEDULE: dict[str, Any] = {"train_batch_size": 2, "num_train_steps": 12, "learning_rate": 0.01}
PHASES: list[dict[str, Any]] = [
    {"at": 4, "weights": {"web": 1, "code": 3}},
    {"at": 8, "tokens": "annealing", "learning_rate": 0.02, "lr_schedule": "cosine"},
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `tokenize` leaves of each song, and `mix` of two of them."""
    root = tmp_path_factory.mktemp("stores").resolve()
    for name, line in SONGS.items():
        for split, count in (("train", 60), ("validation", 20)):
            TokenStore.build(root / name / split, [line] * count)
    (root / "mixed").mkdir()
    mix({"weights": {"web": 3, "code": 1}}, {x: root / x for x in ("web", "code")}, root / "mixed")
    return {name: root / name for name in (*SONGS, "mixed")}


# ── Making ───────────────────────────────────────────────────────────────────────────────────


def test_a_mixture_is_its_stores_below_their_names_without_room_of_their_own(
    stores: dict[str, Path],
) -> None:
    mixed = stores["mixed"]
    made = digests.digests(mixed)
    for name in ("web", "code"):
        for path, digest in digests.digests(stores[name]).items():
            assert made.pop(f"{name}/{path}") == digest
            assert (mixed / name / path).samefile(stores[name] / path)
    assert list(made) == ["mixture.json"]
    assert json.loads((mixed / "mixture.json").read_text()) == {"weights": {"web": 3, "code": 1}}
    weights = {name: weight for name, (_, weight) in parts_of(mixed, "train").items()}
    assert weights == {"web": 3, "code": 1}


def test_files_are_copied_if_hard_links_fail(
    stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", elsewhere)
    inputs = {name: stores[name] for name in ("web", "code")}
    mix({"weights": {"web": 3, "code": 1}}, inputs, tmp_path)
    assert digests.digests(tmp_path.resolve()) == digests.digests(stores["mixed"])
    one = "train/manifest.json"
    assert not (tmp_path / "web" / one).samefile(stores["web"] / one)


def test_texts_share_a_tokenizer_that_one_of_them_has_learnt(tmp_path: Path) -> None:
    for name in ("web", "code"):
        (tmp_path / name).mkdir()
        for split in ("train", "validation"):
            line = json.dumps({"text": SONGS[name] * 9})
            (tmp_path / name / f"{split}.jsonl").write_text(f"{line}\n" * 9)
    learning = {"source": None, "tokenizer": "bpe", "vocab_size": 270}
    tokenize(learning, {"text": tmp_path / "web"}, tmp_path / "one")
    given = {"source": None, "tokenizer": "given", "vocab_size": None}
    inputs = {"text": tmp_path / "code", "tokenizer": tmp_path / "one"}
    tokenize(given, inputs, tmp_path / "other")
    both = {"web": tmp_path / "one", "code": tmp_path / "other"}
    mix({"weights": {"web": 1, "code": 1}}, both, tmp_path / "mixed")
    assert {
        store.manifest.vocab_size for store, _ in parts_of(tmp_path / "mixed", "train").values()
    } == {270}


def test_an_impossible_mixture_is_refused_when_it_runs(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    half = {"weights": {"web": 1, "other": 1}}
    with pytest.raises(WrongTokens, match="other is a mixture already; name its parts"):
        mix(half, {"web": stores["web"], "other": stores["mixed"]}, tmp_path / "a")
    tokenizer = train_bpe([SONGS["web"]], 270)
    for split in ("train", "validation"):
        TokenStore.build(tmp_path / "other" / split, [SONGS["web"]], tokenizer)
    with pytest.raises(WrongTokens, match="other and web were made by different tokenizers"):
        mix(half, {"web": stores["web"], "other": tmp_path / "other"}, tmp_path / "b")
    with pytest.raises(WrongTokens, match="there is no token store"):
        mix(half, {"web": stores["web"], "other": tmp_path}, tmp_path / "c")


# ── Training ─────────────────────────────────────────────────────────────────────────────────


def batches(of: Sampler) -> list[Any]:
    return [
        of.rows(step, range(of.batch_sizes.at(step))).inputs_BS.tolist() for step in range(1, 20)
    ]


def test_a_mixture_is_sampled_by_its_weights_and_one_store_as_ever(
    stores: dict[str, Path],
) -> None:
    config = TrainConfig(**SCHEDULE)
    opened = {name: TokenStore.open(stores[name] / "train") for name in SONGS}
    mixed = sampler(config, 3, 16, {"tokens": stores["mixed"]})
    assert mixed.block_counts == [768, 256]
    plain = Sampler([(opened["web"], 3), (opened["code"], 1)], 3, 2, 16)
    assert batches(mixed) == batches(plain)
    one = sampler(config, 3, 16, {"tokens": stores["web"]})
    assert batches(one) == batches(Sampler(opened["web"], 3, 2, 16))


def test_a_mixture_passes_over_a_part_no_more_often_than_it_says(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    inputs = {name: stores[name] for name in ("web", "code")}
    said = {"weights": {"web": 1, "code": 1}, "most_epochs": {"code": 0.1}}
    mix(said, inputs, tmp_path / "mixed")
    config = TrainConfig(**SCHEDULE)
    rows = (TokenStore.open(stores["code"] / "train").manifest.tokens - 1) // 16
    mixed = sampler(config, 3, 16, {"tokens": tmp_path / "mixed"})
    assert mixed.block_counts == [1024 - rows // 10, rows // 10]
    mix(said | {"most_epochs": {"web": 0.01, "code": 0.01}}, inputs, tmp_path / "little")
    with pytest.raises(WrongTokens, match="raise most_epochs"):
        sampler(config, 3, 16, {"tokens": tmp_path / "little"})


def test_phases_sample_what_they_name_and_a_store_is_known_by_its_content(
    stores: dict[str, Path],
) -> None:
    opened = {name: TokenStore.open(stores[name] / "train") for name in SONGS}
    phases = [*PHASES, {"at": 10, "tokens": "again"}, {"at": 11, "tokens": "tokens"}]
    inputs = {
        "tokens": stores["mixed"],
        "annealing": stores["clean"],
        "again": stores["code"],  # which is a part of the mixture too
    }
    found = sampler(TrainConfig(**SCHEDULE, phases=phases), 3, 16, inputs)
    sources = [(opened["web"], 3), (opened["code"], 1), (opened["clean"], 0)]
    shares = [(4, [1, 3, 0]), (8, [0, 0, 1]), (10, [0, 1, 0]), (11, [3, 1, 0])]
    assert batches(found) == batches(Sampler(sources, 3, 2, 16, phases=shares))


def test_mixture_weights_that_do_not_match_are_refused(stores: dict[str, Path]) -> None:
    config = TrainConfig(**SCHEDULE, phases=[{"at": 4, "weights": {"web": 1, "cod": 3}}])
    with pytest.raises(WrongTokens, match="weights for web, cod, and the parts of `tokens` are "):
        sampler(config, 0, 16, {"tokens": stores["mixed"]})
    with pytest.raises(WrongTokens, match="the parts of `tokens` are none"):
        sampler(config, 0, 16, {"tokens": stores["web"]})


def made(stores: dict[str, Path], out: Path, phases: list[dict[str, Any]] = PHASES) -> str:
    """The SHA-256 of the model that a maker ends with."""
    out.mkdir(parents=True)
    declared = {"model": MODEL, "train": {**SCHEDULE, "checkpoint_every": 3, "phases": phases}}
    config = Train.model_validate(declared).model_dump(mode="json")
    training.train(config, {"tokens": stores["mixed"], "annealing": stores["clean"]}, out)
    return hashlib.sha256((out / "params.safetensors").read_bytes()).hexdigest()


# ── Declaring ────────────────────────────────────────────────────────────────────────────────

HEAD = """\
title: Mixtures
resources: {kind: cpu}
steps:
  web: {do: tokenize, config: {source: stdlib}}
  code: {do: tokenize, config: {source: stdlib}}
  own: {do: make:it}
  many: {do: tokenize, config: {source: stdlib}, sweep: [{name: a}, {name: b}]}
"""
MIX = "  mix: {do: mix, inputs: {web: web, code: code}, config: {weights: {web: 0.7, code: 0.3}}}\n"


def train_step(phases: str, inputs: str = "tokens: mix") -> str:
    return (
        f"{MIX}  train:\n    do: train\n    inputs: {{{inputs}}}\n    config:\n"
        f"      model: {json.dumps(MODEL)}\n      train:\n        train_batch_size: 2\n"
        f"        num_train_steps: 12\n        learning_rate: 0.01\n        phases:\n{phases}"
    )


PHASE = "          - {at: 4, %s}\n"


@pytest.mark.parametrize(
    ("text", "line", "field", "sentence"),
    [
        (MIX.replace("code: 0.3", "coda: 0.3"), 8, "steps.mix.config.weights.coda",
         "`coda` is not an input; did you mean `code`?"),
        (MIX.replace(", code: 0.3", ""), 8, "steps.mix.config.weights", "`code` has no weight"),
        (MIX.replace("0.3", "0.0"), 8, "steps.mix.config.weights.code", "than 0, not `0.0`"),
        (MIX.replace("0.3", "x"), 8, "steps.mix.config.weights.code", "must be a number"),
        (MIX.replace("code: 0.3", "A-B: 0.3"), 8, "steps.mix.config.weights.A-B",
         "`A-B` is not a name of an input"),
        (MIX.replace("{weights: {web: 0.7, code: 0.3}}", "{}"), 8, "steps.mix.config.weights",
         "is missing"),
        (MIX.replace(", code: code", "").replace(", code: 0.3", ""), 8, "steps.mix.inputs",
         "a mixture has two inputs at least"),
        (MIX.replace("code: code", "code: many"), 8, "steps.mix.inputs.code",
         "`many` is a sweep, and `mix` takes one output here"),
        (MIX + MIX.replace("  mix:", "  twice:").replace("code: code", "code: mix"), 9,
         "steps.twice.inputs.code", "the step `mix` makes a mixture of token stores, and `mix` "
         "takes a token store here; name what it mixes instead"),
        (train_step(PHASE % "tokens: clean", "tokens: mix, clear: web"), 19,
         "steps.train.config.train.phases.0.tokens",
         "there is no input `clean`; did you mean `clear`?"),
        ("  s: {do: filter, inputs: {text: own}}\n"
         + train_step(PHASE % "tokens: late", "tokens: mix, late: s"), 12,
         "steps.train.inputs.late", "the step `s` makes a text, and `train` takes a token store or "
         "a mixture of token stores or a store of conversations here; name a step that does "
         "`tokenize` or `conversations` or `mix`, or own code"),
        (train_step(PHASE % "warmup: 1", "tokens: mix, spare: web"), 11,
         "steps.train.inputs.spare", "no phase has `spare` as its `tokens`"),
        (train_step(PHASE % "warmup: 1", "tokens: mix, token: web"), 11,
         "steps.train.inputs.token", "not be trained on; did you mean `tokens`?"),
        (train_step(PHASE % "weights: {web: 1, cod: 2}"), 19,
         "steps.train.config.train.phases.0.weights.cod", "is not a part of `tokens`; did you"),
        (train_step(PHASE % "weights: {web: 1}"), 19,
         "steps.train.config.train.phases.0.weights", "`code` has no weight"),
        (train_step(PHASE % "weights: {web: 1}", "tokens: web"), 19,
         "steps.train.config.train.phases.0.weights.web", "`web` is not a part of `tokens`"),
        (train_step(PHASE % "warmup: 1" + PHASE % "warmup: 2"), 20,
         "steps.train.config.train.phases.1.at", "cannot follow one at 4"),
        (train_step(PHASE % "learning_rat: 1"), 19,
         "steps.train.config.train.phases.0.learning_rat", "did you mean `learning_rate`?"),
        (train_step(PHASE % "seq_len: 4"), 19,
         "steps.train.config.train.phases.0.seq_len", "unknown key"),
        ("  t: {do: tokenize, config: {source: stdlib, tokenizer: given}}\n", 8, "steps.t",
         "`tokenizer: given` and the input `tokenizer` go together"),
        ("  t: {do: tokenize, inputs: {tokenizer: web}, config: {source: stdlib}}\n", 8, "steps.t",
         "`tokenizer: given` and the input `tokenizer` go together"),
        (train_step("          {at: 4}\n"), 18, "steps.train.config.train.phases",
         "must be a list, not a mapping"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_with_its_line(
    text: str, line: int, field: str, sentence: str
) -> None:
    with pytest.raises(BadExperiment) as it:
        declaration.parse(HEAD + text, "experiment.yaml")
    found = [(one.line, one.field, one.message) for one in it.value.problems]
    assert any(one[:2] == (line, field) and sentence in one[2] for one in found), found


def test_own_code_may_output_any_mixture() -> None:
    phase = PHASE % "tokens: other, weights: {any: 1, thing: 2}"
    text = HEAD + train_step(phase, "tokens: mix, other: own")
    [found] = declaration.parse(text, "experiment.yaml").arms["train"].train.phases
    assert (found.tokens, found.weights) == ("other", {"any": 1, "thing": 2})


def test_a_point_of_a_sweep_depends_on_the_inputs_that_it_trains_on() -> None:
    flat = "    sweep: [{name: flat, train.phases: []}, {name: late}]\n"
    text = train_step(PHASE % "tokens: late", "tokens: mix, late: web") + flat
    nodes = declaration.parse(HEAD + text, "experiment.yaml").nodes
    assert nodes["train/flat"].inputs == {"tokens": ("mix",)}
    assert nodes["train/late"].inputs == {"tokens": ("mix",), "late": ("web",)}


SHORT = """\
title: Phases
data: {source: stdlib}
model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}
train: {train_batch_size: 2, num_train_steps: 12, learning_rate: 0.01}
resources: {kind: cpu}
arms:
  flat: {}
  late:
    train:
      phases:
        - {at: 8, lr_schedule: cosine%s}
"""


def test_an_arm_can_change_its_schedule_and_costs_the_same() -> None:
    experiment = declaration.parse(SHORT % "", "experiment.yaml")
    plan = planner.make_plan(experiment, Path("x"))
    flat, late = plan.arms["flat"], plan.arms["late"]
    assert [phase.at for phase in late.train.phases] == [8]
    assert (late.tokens, late.model_flops) == (flat.tokens, flat.model_flops)
    assert type(plan).model_validate_json(plan.model_dump_json()) == plan
    other = declaration.parse(SHORT % ", warmup: 1", "experiment.yaml")
    again = planner.make_plan(other, Path("x"))
    assert again.fingerprint != plan.fingerprint


def test_the_data_of_an_arm_stays() -> None:
    for key, value in (("tokens", "clean"), ("weights", "{a: 1}")):
        with pytest.raises(BadExperiment) as it:
            declaration.parse(SHORT % f", {key}: {value}", "experiment.yaml")
        [problem] = it.value.problems
        assert (problem.line, problem.field) == (11, f"arms.late.train.phases.0.{key}")
        assert "data can change where there are `steps`" in problem.message
