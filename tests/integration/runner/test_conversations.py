"""From conversations to a tuned model: `conversations`, `train` with `init`, and scores by
label."""

import json
import os
import signal
import subprocess
import sys
import time
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
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from runner.lib.problems import BadExperiment
from runner.planning import planned_steps, planner
from runner.schema.record import Plan
from runner.store.artifacts import MakingFailed
from runner.store.store import Store
from runner.worker import executor, template_child
from runner.worker.builtin.conversations import labels_of
from runner.worker.builtin.mixtures import sampler, scored_parts
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


def test_a_model_is_tuned_and_scored_by_label(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
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


def test_parquet_is_read_as_the_same_lines(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
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
    with pytest.raises(BadText, match=r"chats\.parquet (cannot be read|takes more than)"):
        planned_steps.text(tmp_path, "chats.parquet")


def test_the_loss_of_packed_conversations_is_that_of_each_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    chats = made(store, planned(tmp_path, store))["chats"].folder
    model = Decoder(ModelConfig.model_validate(yaml.safe_load(MODEL)))
    params = model.init(jax.random.key(1))
    tokens = TokenStore.open(chats / "train")
    scored = np.isin(labels_of(tokens), [LABELS.index("final") + 1])
    in_memory = replace(tokens.load(), folder=None, scored=scored)
    sums = []
    for alone in (False, True):
        rows_of = PackedRows(in_memory, 512, alone=alone)
        batch = rows_of.read(np.arange(len(rows_of)))
        found = cross_entropy(
            model.features(params, batch.inputs_BS, batch.segments_BS),
            model.output_matrix(params),
            batch.targets_BS,
        )
        sums.append((float(found.nats), float(found.targets), len(rows_of)))
    assert sums[0][1] == sums[1][1] > 0
    assert sums[0][2] < sums[1][2], "packing takes fewer rows"
    assert sums[0][0] == pytest.approx(sums[1][0], rel=1e-5)


def test_own_models_are_tuned_on_one_conversation_a_row(tmp_path: Path) -> None:
    own = DECLARED.replace(MODEL, "{seq_len: 256}, own: {model: 'model:Table'}")
    store = Store(tmp_path / "store")
    out = made(store, planned(tmp_path, store, own), terms=executor.Terms("bubblewrap"))
    measured = json.loads((out["scores"].folder / "measured.json").read_text())[""]
    assert measured["eval/final/bpb"]["value"] > 0


def test_only_the_asked_for_labels_are_trained_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    chats = made(store, planned(tmp_path, store))["chats"].folder
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
    tmp_path: Path, was: str, now: str, words: str
) -> None:
    assert was in DECLARED
    with pytest.raises(BadExperiment) as it:
        planned(tmp_path, Store(tmp_path / "store"), DECLARED.replace(was, now, 1))
    [*found] = [one for one in it.value.problems if words in one.message]
    assert found, it.value.problems
    assert found[0].line


def test_a_row_that_is_no_conversation_is_said_when_planned(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    planned(tmp_path, store)
    with (tmp_path / "tuned/chats.jsonl").open("a") as file:
        file.write('{"messages": [{"role": "bot"}]}\n')
    with pytest.raises(BadExperiment, match=r"chats.jsonl, line 61, message 0 has the role 'bot'"):
        planner.plan_folder(tmp_path / "tuned", store)


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
    tmp_path: Path, was: str, now: str, words: str
) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(MakingFailed, match=words):
        made(store, planned(tmp_path, store, DECLARED.replace(was, now)))


def test_long_conversations_are_dropped_or_cut_and_counted(tmp_path: Path) -> None:
    found = {}
    for longer in ("drop", "cut"):
        (tmp_path / longer).mkdir()
        store = Store(tmp_path / longer / "store")
        declared = DECLARED.replace("max_tokens: 256", f"max_tokens: 177, longer: {longer}")
        out = made(store, planned(tmp_path / longer, store, declared))["chats"].folder
        found[longer] = json.loads((out / "counts.json").read_text())["train"]
    assert found["drop"]["dropped"] == found["cut"]["cut"] > 0
    assert 0 < found["cut"]["cut_in_a_turn"] <= found["cut"]["cut"]
    assert found["drop"]["tokens"] < found["cut"]["tokens"]


@pytest.mark.parametrize(
    "loop",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set x = namespace(a='a') %}{% for n in range(60) %}{% set x.a = x.a * 9 %}{% endfor %}",
    ],
)
def test_a_template_that_loops_or_grows_is_stopped(loop: str) -> None:
    begun, asked = time.monotonic(), [{"role": "user", "content": "a"}]
    template = f"{{% generation %}}{loop}{{% endgeneration %}}"
    with (
        template_child.renderer(template) as render,
        pytest.raises(BadTemplate, match=r"10 seconds or 1024 MB|MemoryError"),
    ):
        render(asked, None)
    assert time.monotonic() - begun < 60


MAKE = """
import sys
from pathlib import Path
from runner.schema import record
from runner.store.store import Store
from runner.worker import executor
root, plan, code = sys.argv[1:]
plan = record.Plan.model_validate_json(Path(plan).read_bytes())
executor.make(Store(Path(root)), "tune", plan.steps, plan.kinds, Path(code), "x2", stale_after=3.0)
"""


@pytest.mark.long
def test_tuning_that_was_killed_ends_with_the_same_bytes(tmp_path: Path) -> None:
    outputs = []
    for name in ("whole", "killed"):
        store = Store(tmp_path / f"store-{name}")
        plan = planned(tmp_path, store, STEPS="60")
        code = store.local(planner.code_folder(plan))
        done = {}
        for step in ("tokens", "chats", "pretrain"):
            done[step] = executor.make(store, step, plan.steps, plan.kinds, code, "x1")
        (tmp_path / "plan.json").write_text(plan.model_dump_json())
        command = [
            sys.executable,
            "-c",
            MAKE,
            str(store.root),
            str(tmp_path / "plan.json"),
            str(code),
        ]
        if name == "killed":
            process = subprocess.Popen(command, start_new_session=True)
            place = store.local(f"steps/train/{plan.steps['tune'].fingerprint[:16]}")
            until = time.monotonic() + 120
            while not list(place.glob("*.scratch/checkpoints/[0-9]*")):
                assert process.poll() is None, "it ended before it was killed"
                assert time.monotonic() < until
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        subprocess.run(command, check=True)
        [*found] = place_of(store, plan).glob("*/params.safetensors")
        outputs.append([path.read_bytes() for path in found])
    assert outputs[0] == outputs[1]


def place_of(store: Store, plan: Plan) -> Path:
    return Path(store.local(f"steps/train/{plan.steps['tune'].fingerprint[:16]}"))
