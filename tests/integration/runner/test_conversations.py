"""From conversations to a tuned model: `conversations`, `train` with `init`, and scores by
label."""

import json
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.chat_template import BadTemplate
from engine.data.conversations import LABELS
from engine.data.documents import rows_as_lines
from engine.data.lab_texts import BadText, read_text
from engine.data.packing import PackedRows
from engine.data.token_store import TokenStore
from engine.data.tokenize import byte_tokenizer
from engine.model.decoder import Decoder
from engine.model.loss import Losses, cross_entropy
from runner.isolation import template_child
from runner.lib.problems import BadExperiment
from runner.planning import planned_steps, planner
from runner.schema.record import Plan
from runner.store.artifacts import MakingFailed
from runner.store.store import Store
from runner.worker import executor
from runner.worker.texts.conversations import _cut, labels_of
from runner.worker.texts.mixtures import sampler, scored_parts
from tests.integration.runner.test_execute import made
from tests.integration.runner.test_init import OWN

MODEL = "{hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 256}"
TRAIN = "{train_batch_size: 2, num_train_steps: STEPS, learning_rate: 0.01, checkpoint_every: 2}"
DECLARED = f"""title: Tune
resources: {{kind: cpu}}
steps:
  tokens: {{do: tokenize, config: {{source: lab-2026-11}}}}
  pretrain:
    do: train
    inputs: {{tokens: tokens}}
    config: {{model: {MODEL}, train: {TRAIN}}}
  chats:
    do: conversations
    inputs: {{tokenizer: tokens}}
    config: {{source: SOURCE, template: chatml, labels: [observation, final], max_tokens: 256}}
  tune: {{do: train, inputs: {{tokens: chats, init: pretrain}},
         config: {{model: {MODEL}, train: {TRAIN}}}}}
  scores: {{do: evaluate, inputs: {{models: tune, tokens: chats}}, config: {{tokens: 90}}}}
"""


def rows(count: int = 60) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"List {n}."},
                {"role": "assistant", "content": f"```bash\nls {n}\n```"},
                {"role": "user", "content": "a " * (n % 9) + "b"},
                {"role": "assistant", "content": f"There are {n % 9 + 1} files."},
            ]
        }
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Where the tests find what others of them have made."""
    return Store(tmp_path_factory.mktemp("conversations") / "store")


def planned(tmp_path: Path, store: Store, declared: str = DECLARED, **parts: str) -> Plan:
    folder = tmp_path / "tuned"
    folder.mkdir(exist_ok=True)
    for was, now in ({"STEPS": "4", "SOURCE": "chats.jsonl"} | parts).items():
        declared = declared.replace(was, now)
    (folder / "experiment.yaml").write_text(declared)
    (folder / "model.py").write_text(OWN)
    lines = "".join(json.dumps(row) + "\n" for row in rows())
    (folder / "chats.jsonl").write_text(lines)
    parquet.write_table(pa.Table.from_pylist(rows()), folder / "chats.parquet")
    return planner.plan_folder(folder, store)


def tokenized(tmp_path: Path, store: Store, declared: str = DECLARED) -> Path:
    """The output of `chats` alone."""
    plan = planned(tmp_path, store, declared)
    return made(store, plan, steps=("tokens", "chats"))["chats"].folder


def test_a_model_is_tuned_and_scored_by_label(store: Store, tmp_path: Path) -> None:
    out = made(store, planned(tmp_path, store))
    counts = json.loads((out["chats"].folder / "counts.json").read_text())
    assert counts["train"]["conversations"] + counts["validation"]["conversations"] == 60
    measured = json.loads((out["scores"].folder / "measured.json").read_text())[""]
    labels = "assistant", "observation", "final"
    assert {f"eval/{label}/bpb" for label in labels} < measured.keys()
    assert all(0 < measured[f"eval/{label}/bpb"]["value"] < 12 for label in labels)
    parts = scored_parts(out["chats"].folder)
    assert list(parts) == ["assistant", "observation", "final"]
    store_of = parts["final"]
    text = bytes(store_of.read(slice(0, store_of.manifest.tokens))[store_of.scored].tolist())
    assert text.decode().startswith("There are ")
    assert text.decode().endswith(" files.<|im_end|>")


def test_parquet_is_read_as_the_same_lines(store: Store, tmp_path: Path) -> None:
    planned(tmp_path, store)
    lines = (tmp_path / "tuned/chats.jsonl").read_bytes()
    assert rows_as_lines(tmp_path / "tuned/chats.parquet") == lines
    plan = planned(tmp_path, store, SOURCE="chats.parquet")
    text = read_text("chats.jsonl", tmp_path / "tuned")
    assert plan.steps["chats"].config["sha256"]["train"] == text.train_sha256


@pytest.mark.parametrize("rows", [3_000, 200_000])
def test_a_parquet_file_that_expands_to_more_than_memory_ends_its_child_only(
    rows: int, tmp_path: Path
) -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 100_000])
    bomb = tmp_path / "chats.parquet"
    parquet.write_table(pa.table({"messages": names}), bomb, store_schema=False)
    assert bomb.stat().st_size < 300_000, "and it is 0.3 or 20 GB of text"
    with pytest.raises(BadText, match=r"chats\.parquet cannot be read"):
        planned_steps.text(tmp_path, "chats.parquet")


def test_the_loss_of_packed_conversations_is_that_of_each_alone(
    store: Store, tmp_path: Path
) -> None:
    chats = tokenized(tmp_path, store)
    model = Decoder(ModelConfig.model_validate(yaml.safe_load(MODEL)))
    params = model.init(jax.random.key(1))
    tokens = TokenStore.open(chats / "train")
    scored = np.isin(labels_of(tokens), [LABELS.index("final") + 1])
    in_memory = replace(tokens.load(), folder=None, scored=scored)

    @jax.jit
    def loss(inputs_BS: jax.Array, segments_BS: jax.Array, targets_BS: jax.Array) -> Losses:
        features = model.features(params, inputs_BS, segments_BS)
        return cross_entropy(features, model.output_matrix(params), targets_BS)

    sums = []
    for alone in (False, True):
        rows_of = PackedRows(in_memory, 512, alone=alone)
        batch = rows_of.read(np.arange(len(rows_of)))
        found = loss(batch.inputs_BS, batch.segments_BS, batch.targets_BS)
        sums.append((float(found.nats), float(found.targets), len(rows_of)))
    assert sums[0][1] == sums[1][1] > 0
    assert sums[0][2] < sums[1][2], "packing takes fewer rows"
    assert sums[0][0] == pytest.approx(sums[1][0], rel=1e-5)


def test_own_models_are_tuned_on_one_conversation_a_row(store: Store, tmp_path: Path) -> None:
    own = DECLARED.replace(MODEL, "{seq_len: 256}, own: {model: 'model:Table'}")
    out = made(store, planned(tmp_path, store, own), terms=executor.Terms("bubblewrap"))
    measured = json.loads((out["scores"].folder / "measured.json").read_text())[""]
    assert measured["eval/final/bpb"]["value"] > 0


def test_only_the_asked_for_labels_are_trained_on(store: Store, tmp_path: Path) -> None:
    chats = tokenized(tmp_path, store)
    config = TrainConfig(train_batch_size=2, num_train_steps=4, learning_rate=0.01)
    for labels, ending in ((("final",), "files.<|im_end|>"), (("observation",), "b")):
        batch = sampler(config, 0, 256, {"tokens": chats}, labels).rows(1, [0, 1])
        text = bytes(batch.targets_BS[batch.targets_BS >= 0].tolist()).decode()
        assert text.endswith(ending)
        assert "bash" not in text


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("template: chatml", "template: chatmm", "there is no template `chatmm`; there are chatml"),
        ("template: chatml", "template: '{{ messages }}'", "has no {% generation %} tag"),
        ("template: chatml", "template: '{% generation %}{{ messages|x }}{% endgeneration %}'",
         "the chat template fails: No filter named 'x'"),
        ("max_tokens: 256}", "max_tokens: 257}",
         "up to 257 tokens (max_tokens), and seq_len is 256"),
        ("SOURCE", "chats.txt", "should match pattern"),
        ("source: SOURCE, ", "", "needs a `source` or the input `conversations`"),
        ("init: pretrain},\n         config: {", "init: pretrain},\n         config: {loss_on: "
         "[patch], ", "`chats` has no label `patch`"),
        ("{tokens: tokens}\n    config: {", "{tokens: tokens}\n    config: {loss_on: [final], ",
         "it is for conversations, and `tokens` makes a token store"),
        ("SOURCE", "other.jsonl", "is not a file in the experiment's folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_on_is_said_when_planned(
    store: Store, tmp_path: Path, was: str, now: str, words: str
) -> None:
    assert was in DECLARED
    with pytest.raises(BadExperiment) as it:
        planned(tmp_path, store, DECLARED.replace(was, now, 1))
    [*found] = [one for one in it.value.problems if words in one.message]
    assert found, it.value.problems
    assert found[0].line


def test_a_row_that_is_no_conversation_is_said_when_planned(store: Store, tmp_path: Path) -> None:
    planned(tmp_path, store)
    with (tmp_path / "tuned/chats.jsonl").open("a") as file:
        file.write('{"messages": [{"role": "bot"}]}\n')
    with pytest.raises(BadExperiment, match=r"chats.jsonl, line 61, message 0 has the role 'bot'"):
        planner.plan_folder(tmp_path / "tuned", store)


def test_a_row_that_the_template_leaves_out_is_said_when_planned(
    store: Store, tmp_path: Path
) -> None:
    planned(tmp_path, store, DECLARED.replace("chatml", "gemma"))
    row = {"messages": rows(1)[0]["messages"], "tools": [{"name": "list"}]}
    with (tmp_path / "tuned/chats.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(BadExperiment, match=r"chats.jsonl, line 61: the conversation has `tools`"):
        planner.plan_folder(tmp_path / "tuned", store)


def test_a_template_for_conversations_that_are_still_to_be_made_is_tried_when_planned(
    store: Store, tmp_path: Path
) -> None:
    own = "  mine: {do: 'model:rows'}\n  chats:\n"
    declared = DECLARED.replace("  chats:\n", own).replace("source: SOURCE, ", "")
    declared = declared.replace(
        "inputs: {tokenizer: tokens}", "inputs: {tokenizer: tokens, conversations: mine}"
    )
    wrong = "'{% generation %}{{ strftime_then() }}{% endgeneration %}'"
    with pytest.raises(BadExperiment, match="'strftime_then' is undefined"):
        planned(tmp_path, store, declared.replace("template: chatml", f"template: {wrong}"))
    refuses = "'{% generation %}{{ raise_exception(messages) }}{% endgeneration %}'"
    with pytest.raises(BadExperiment) as it:
        planned(tmp_path, store, declared.replace("template: chatml", f"template: {refuses}"))
    assert not any("template" in (one.field or "") for one in it.value.problems)


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("max_tokens: 256", "max_tokens: 90", r"line \d+ has \d+ tokens, and max_tokens is 90"),
        ("[observation, final]", "[patch]", "has the label patch"),
        ("template: chatml",
         "template: '{% generation %}{% endgeneration %}{{ messages }}'",
         "marks no token in the train split of chats.jsonl as the assistant's"),
    ],
)  # fmt: skip
def test_what_shows_only_in_the_tokens_stops_the_step(
    store: Store, tmp_path: Path, was: str, now: str, words: str
) -> None:
    with pytest.raises(MakingFailed, match=words):
        tokenized(tmp_path, store, DECLARED.replace(was, now))


def test_long_conversations_are_dropped_or_cut_and_counted(store: Store, tmp_path: Path) -> None:
    found = {}
    for longer in ("drop", "cut"):
        declared = DECLARED.replace("max_tokens: 256", f"max_tokens: 177, longer: {longer}")
        out = tokenized(tmp_path, store, declared)
        found[longer] = json.loads((out / "counts.json").read_text())["train"]
        kept = TokenStore.open(out / "train")
        assert kept.token_bytes.any(), "what is left is a text"
    assert found["drop"]["dropped"] == found["cut"]["cut"] > 0
    assert 0 < found["cut"]["cut_in_a_turn"] <= found["cut"]["cut"]
    assert found["drop"]["tokens"] < found["cut"]["tokens"]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_a_conversation_is_cut_between_two_characters_and_its_text_with_it(most: int) -> None:
    tokenizer, whole = byte_tokenizer(), "a⛵b"
    text, ids = _cut(whole, tokenizer.encode_batch([whole])[0], most, tokenizer)
    assert text == {4: "a⛵", 5: whole}.get(most, "a")
    assert ids.tobytes() == text.encode()


@pytest.mark.parametrize(
    "loop",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set x = namespace(a='a') %}{% for n in range(60) %}{% set x.a = x.a * 9 %}{% endfor %}",
    ],
)
def test_a_template_that_loops_or_grows_is_stopped(
    monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(template_child, "LIMITS", template_child.LIMITS._replace(seconds=1.0))
    begun, asked = time.monotonic(), [{"role": "user", "content": "a"}]
    template = f"{{% generation %}}{loop}{{% endgeneration %}}"
    with pytest.raises(BadTemplate, match=r"more than 1 seconds|MemoryError"):
        template_child.render(template, asked)
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
            "cannot be compiled: too many statically",
        ),
        ("{{ [1, 2, 3]|random }}", "draws by chance"),
    ],
)
def test_what_a_template_fails_by_is_no_time_out(template: str, words: str) -> None:
    with pytest.raises(BadTemplate, match=words):
        template_child.render(template, [{"role": "user", "content": "a"}])


@pytest.mark.long
def test_tuning_that_was_killed_ends_with_the_same_bytes(store: Store, tmp_path: Path) -> None:
    head, of, tune = DECLARED.partition("  tune:")
    plan = planned(tmp_path, store, head + of + tune.replace("STEPS", "40"))
    made(store, plan, steps=("tokens", "chats", "pretrain", "tune"))
    at = f"steps/train/{plan.steps['tune'].fingerprint[:16]}"
    place = store.local(at)
    place.rename(tmp_path / "whole")
    shutil.rmtree(store.local(f"leases/{at}"))

    with ThreadPoolExecutor(1) as pool:
        tuned = pool.submit(made, store, plan, steps=("tune",))
        while not [x for x in place.glob("*.scratch/checkpoints/*") if x.name.isdigit()]:
            assert not tuned.done(), "it ended before it was killed"
            time.sleep(0.01)
        [maker] = [int(x.parent.name) for x in Path("/proc").glob("[0-9]*/cwd") if in_(place, x)]
        os.kill(maker, signal.SIGKILL)
        killed = tuned.result()["tune"].folder
    [*_, last] = sorted(place.glob("*.scratch/curve/000000.jsonl"))
    assert json.loads(last.read_text().splitlines()[0])["step"] > 2, "it went on"
    for name in ("params.safetensors", "curve.jsonl"):
        [whole] = tmp_path.glob(f"whole/*/{name}")
        assert whole.read_bytes() == (killed / name).read_bytes()


def in_(folder: Path, link: Path) -> bool:
    with suppress(OSError):
        return folder in link.readlink().parents
    return False
