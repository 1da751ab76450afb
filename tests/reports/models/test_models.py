"""Models as people have them: each report of another tool's users as a folder, which is read with
the logits of `transformers` or refused in words. `README.md` lists them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import hugging_face
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.data.tokenize import byte_tokenizer
from engine.model.decoder import Decoder
from engine.training.architectures import CannotExchange
from engine.training.export import export
from engine.training.pretrained import read, read_tokenizer

TOKENS = np.random.default_rng(1).integers(0, 40, (2, 24)).astype(np.int32)
LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3"}
LLAMA3 |= {"original_max_position_embeddings": 12}
WINDOW = {"use_sliding_window": True, "sliding_window": 5}
CUT = {"max_shard_size": 6_000}
Edit = Callable[[Path], None]


def config(*without: str, **fields: Any) -> Edit:
    """An edit of the folder's config.json."""

    def edit(folder: Path) -> None:
        path = folder / "config.json"
        declared = {**json.loads(path.read_text()), **fields}
        path.write_text(json.dumps({x: of for x, of in declared.items() if x not in without}))

    return edit


def weights(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Edit:
    """More tensors in the folder's model.safetensors."""

    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        save_file(tensors | change(tensors), folder / "model.safetensors")

    return edit


def head(more: float) -> Edit:
    return weights(lambda x: {"lm_head.weight": x["model.embed_tokens.weight"] + more})


def lost_shard(folder: Path) -> None:
    max(folder.glob("model-*.safetensors")).unlink()


def stale_index(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("-of-00004", "-of-00030"))


def stray_file(folder: Path) -> None:
    save_file({"model.norm.weight": np.zeros(4, np.uint32)}, folder / "model.safetensors")


def not_in_the_index(folder: Path) -> None:
    path = max(folder.glob("model-*.safetensors"))
    save_file(load_file(path) | {"model.mtp.eh_proj.weight": np.zeros((2, 2), np.float32)}, path)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model-00001-of-00002.bin")


def other_ends(folder: Path) -> None:
    config(eos_token_id=1)(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))


# ── What is right ────────────────────────────────────────────────────────────────────────────


def alike(folder: Path, _: Any) -> None:
    """Our logits are those of transformers, which reads the same folder."""
    theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
    shape, params = read(folder, None)
    assert np.abs(Decoder(shape).logits(params, TOKENS) - theirs).max() < 1e-5


def as_saved(folder: Path, model: Any) -> None:
    """Our logits are those of the model before it was saved."""
    shape, params = read(folder, None)
    theirs = hugging_face.logits_of(model)(TOKENS)
    assert np.abs(Decoder(shape).logits(params, TOKENS) - theirs).max() < 1e-5


def theta_for_all(folder: Path, model: Any) -> None:
    """What we export says its rotary positions where transformers 4 looks, too."""
    shape, params = read(folder, None)
    export(folder / "out", Decoder(shape), params)
    declared = json.loads((folder / "out/config.json").read_text())
    assert declared["rope_theta"] == declared["rope_parameters"]["rope_theta"] == 50.0
    assert declared["rope_scaling"] == LLAMA3
    as_saved(folder / "out", model)
    alike(folder / "out", model)


def first_end(folder: Path, model: Any) -> None:
    """A text ends with the first of several ends, which base models were trained on."""
    byte_tokenizer().save(folder / "tokenizer.json")
    found = read_tokenizer(folder)
    assert found is not None
    assert found.end_of_document == 1
    as_saved(folder, model)


def padded(folder: Path, model: Any) -> None:
    """The model has more rows than the tokenizer has tokens, and keeps them."""
    first_end(folder, model)
    shape, params = read(folder, None)
    tokenizer = read_tokenizer(folder)
    export(folder / "out", Decoder(shape), params, tokenizer)
    assert shape.vocab_size == 272
    assert hugging_face.load(folder / "out").config.vocab_size == 272


class Report(NamedTuple):
    kind: str
    fields: Mapping[str, Any] = MappingProxyType({})
    edit: Edit | None = None
    right: Callable[[Path, Any], None] | str = alike  # or the refusal
    save: Mapping[str, Any] = MappingProxyType({})


ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}
REPORTS = {
    # Rotary positions
    "sgl-project/sglang#14745": Report(
        "qwen3", {"head_dim": 4}, config("rope_parameters", rope_theta=50.0, rope_scaling=None)
    ),
    "deepspeedai/DeepSpeed#8345": Report("llama", ROPE, config("rope_theta"), as_saved),
    "vllm-project/vllm#42624": Report("llama", ROPE, config(rope_theta=10_000.0), as_saved),
    "marin-community/marin#7146": Report(
        "llama", {"rope_parameters": LLAMA3 | {"rope_theta": 50.0}}, right=theta_for_all
    ),
    "lablup/mlxcel#1355": Report(
        "llama", {}, config("rope_parameters", rope_theta=50.0, rope_scaling=LLAMA3)
    ),
    "modelscope/ms-swift#2340": Report(
        "qwen2",
        {},
        config(rope_scaling={"mrope_section": [1, 1], "rope_type": "default", "type": "default"}),
        "`rope_scaling` has mrope_section",
    ),
    "JIA-Lab-research/LongLoRA#181": Report(
        "llama",
        {},
        config(rope_scaling={"factor": 2.0, "type": "linear"}),
        "`rope_scaling` of type linear",
    ),
    "ServiceNow/Fast-LLM#55": Report(
        "llama",
        {},
        config(rope_scaling=LLAMA3 | {"rope_type": "default"}),
        "`rope_scaling` has factor, high_freq_factor",
    ),
    "AI-Hypercomputer/maxtext#3832": Report(
        "olmo3",
        {"pad_token_id": None, "eos_token_id": None},
        config("rope_parameters", rope_scaling=LLAMA3),
        "`rope_scaling` of some layers only",
    ),
    # Windows
    "huggingface/transformers#35896": Report("qwen2", WINDOW | {"max_window_layers": 2}),
    "vllm-project/vllm#17772": Report("qwen2", WINDOW | {"max_window_layers": 1}),
    "huggingface/transformers#40126": Report("qwen3", WINDOW | {"max_window_layers": 0}),
    "Blackwellboy/model-serving-minefield#107": Report(
        "qwen3", {"head_dim": 4}, config("use_sliding_window", "layer_types", sliding_window=5)
    ),
    # Biases and heads
    "sbryngelson/ANEForge#253": Report("qwen2", {"tie_word_embeddings": True}),
    "sgl-project/sglang#2748": Report("llama", {"attention_bias": True}),
    "mlc-ai/mlc-llm#3494": Report(
        "llama", {"attention_bias": True, "mlp_bias": True}, right="`mlp_bias` is true, and only"
    ),
    "paiml/entrenar#262": Report(
        "qwen3", {"hidden_size": 20, "num_attention_heads": 4, "head_dim": 8}
    ),
    # Tied embeddings and tensors of old files
    "NVIDIA-NeMo/Automodel#2511": Report(
        "llama", {"tie_word_embeddings": True}, head(0.5), "lm_head.weight that is not the embed"
    ),
    "huggingface/transformers#42612": Report(
        "qwen3", {"tie_word_embeddings": True}, head(0.01), "set tie_word_embeddings to false"
    ),
    "ISEEKYAN/mbridge#21": Report("qwen2", {"tie_word_embeddings": True}, head(0), as_saved),
    "huggingface/transformers#35255": Report(
        "llama",
        {},
        weights(lambda _: {"model.rotary_emb.inv_freq": np.ones(2, np.float32)}),
        as_saved,
    ),
    "vllm-project/vllm#46835": Report(
        "llama",
        {"tie_word_embeddings": True},
        weights(lambda _: {"lm_head.bias": np.ones(40, np.float32)}),
        r"holds lm_head\.bias .* no place for",
    ),
    # Files
    "sgl-project/sglang#32279": Report("llama", {}, lost_shard, "which is missing", CUT),
    "Neph0s/CoSER#3": Report("llama", {}, stale_index, "-of-00030.*, which is missing", CUT),
    "Blaizzy/mlx-vlm#1464": Report(
        "llama", {}, stray_file, "both model.safetensors and an index of other files", CUT
    ),
    "NVIDIA/Model-Optimizer#2427": Report(
        "llama", {}, not_in_the_index, r"holds model\.mtp\.eh_proj\.weight", CUT
    ),
    "labscommunity/cascadia#59": Report("llama", {}, pickled, "has pickled weights"),
    "huggingface/transformers#29955": Report("llama", {}, config("dtype", torch_dtype="float16"),
                                             as_saved),
    # Tokens
    "turboderp-org/exllamav2#566": Report(
        "llama", {"vocab_size": 260}, config(eos_token_id=[1, 2, 3]), first_end
    ),
    "b4rtaz/distributed-llama#282": Report(
        "qwen3", {"vocab_size": 272}, config(eos_token_id=1), padded
    ),
    "InfiniTensor/InfiniLM#387": Report(
        "llama", {"vocab_size": 260}, other_ends, first_end
    ),
    "facebookresearch/fairseq2#936": Report(
        "llama", {}, config(architectures=["Fairseq2LlamaForCausalLM"])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_a_model_that_was_reported_comes_in_alike_or_is_refused_in_words(
    name: str, tmp_path: Path
) -> None:
    report = REPORTS[name]
    model = hugging_face.fresh(report.kind, **report.fields)
    model.save_pretrained(tmp_path, **report.save)
    if report.edit:
        report.edit(tmp_path)
    if isinstance(report.right, str):
        with pytest.raises(CannotExchange, match=report.right):
            read(tmp_path, None)
    else:
        report.right(tmp_path, model)
