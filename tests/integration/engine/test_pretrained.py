import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hugging_face
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.model.decoder import Decoder, Params
from engine.training.export import CannotExchange, export
from engine.training.pretrained import read

TOKENS = np.random.default_rng(1).integers(0, 40, (2, 12)).astype(np.int32)

SLIDES = ["sliding_attention", "full_attention"]
WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}
ROPE = {"rope_type": "default", "rope_theta": 50.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama with grouped queries": ("llama", {}),
    "llama with tied embeddings": ("llama", {"tie_word_embeddings": True, "rms_norm_eps": 0.01}),
    "llama with wide heads": ("llama", {"head_dim": 12, "rope_parameters": ROPE}),
    "qwen3 with wide heads": ("qwen3", {"head_dim": 12, "rope_parameters": ROPE}),
    "qwen3 with odd heads": (
        "qwen3",
        {"hidden_size": 20, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6},
    ),
    "qwen3 with a window": ("qwen3", {"head_dim": 4, "tie_word_embeddings": True, **WINDOW}),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder for a model that transformers initialised and saved."""

    def save(kind: str, fields: dict[str, Any], **how: Any) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        hugging_face.fresh(kind, **fields).save_pretrained(folder, **how)
        return folder

    return save


def logits(folder: Path, seq_len: int = 16) -> np.ndarray:
    config, params = read(folder, seq_len)
    return np.asarray(Decoder(config).logits(params, TOKENS))


@pytest.mark.parametrize(("kind", "fields"), MODELS.values(), ids=MODELS)
def test_our_logits_are_those_of_transformers(
    kind: str, fields: dict[str, Any], saved: Callable[..., Path]
) -> None:
    folder = saved(kind, fields)
    theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
    assert np.abs(theirs).max() > 1  # or agreement would say little
    assert np.abs(logits(folder) - theirs).max() < 1e-4


def test_three_training_steps_match_transformers(saved: Callable[..., Path]) -> None:
    folder = saved("qwen3", {"head_dim": 12, "tie_word_embeddings": True})
    theirs = hugging_face.load(folder)
    config, params = read(folder, seq_len=16)
    targets = TOKENS[:, 1:]

    @jax.jit
    @jax.value_and_grad
    def loss(params: Params) -> jax.Array:
        logits = jax.nn.log_softmax(Decoder(config).logits(params, TOKENS)[:, :-1])
        return -jnp.take_along_axis(logits, targets[:, :, None], axis=2).mean()

    ours, other = [], []
    for _ in range(3):
        nats, grads = loss(params)
        params = jax.tree.map(lambda x, grad: x - 0.2 * grad, params, grads)
        ours.append(float(nats))
        theirs.zero_grad()
        found = theirs(torch.from_numpy(TOKENS).long(), labels=torch.from_numpy(TOKENS).long())
        found.loss.backward()
        with torch.no_grad():
            for x in theirs.parameters():
                x -= 0.2 * x.grad
        other.append(found.loss.item())
    assert ours[2] < ours[0] - 0.1
    assert ours == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("qwen3", {"head_dim": 12, **WINDOW}),
        (
            "smollm3",
            {"no_rope_layers": [1, 0], "layer_types": SLIDES, "pad_token_id": None, **WINDOW},
        ),
        ("smollm3", {"no_rope_layers": [0, 0], "pad_token_id": None}),
    ],
)
def test_export_and_import_give_the_same_model(
    kind: str, fields: dict[str, Any], saved: Callable[..., Path], tmp_path: Path
) -> None:
    config, params = read(saved(kind, fields), seq_len=16)
    export(tmp_path, Decoder(config), params, shard_bytes=6_000)
    again, same = read(tmp_path, seq_len=16)
    assert again == config
    assert jax.tree.all(jax.tree.map(np.array_equal, params, same))


def test_a_model_in_several_files_is_the_same(saved: Callable[..., Path]) -> None:
    whole, cut = saved("llama", {}), saved("llama", {}, max_shard_size=6_000)
    assert len(list(cut.glob("*.safetensors"))) > 1
    assert np.array_equal(logits(whole), logits(cut))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_sixteen_bits_are_read_as_they_are(dtype: Any, saved: Callable[..., Path]) -> None:
    folder = saved("llama", {})
    weights = folder / "model.safetensors"
    tensors = {name: x.astype(dtype) for name, x in load_file(weights).items()}
    save_file(tensors, weights)
    _, params = read(folder, seq_len=16)
    gate = tensors["model.layers.1.mlp.gate_proj.weight"].astype(np.float32)
    assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    assert np.array_equal(params["blocks"]["mlp"]["gate_proj"][1], gate.T)


def test_a_window_that_hides_nothing_is_none(saved: Callable[..., Path]) -> None:
    folder = saved("qwen3", {"head_dim": 4, **WINDOW, "max_window_layers": 1})  # in one layer only
    config, params = read(folder, seq_len=5)
    assert config.sliding_window is None
    theirs = hugging_face.logits_of(hugging_face.load(folder))
    ours = Decoder(config).logits(params, TOKENS[:, :5])
    assert np.abs(ours - theirs(TOKENS[:, :5])).max() < 1e-4
    for without in ((), ("layer_types",)):  # older files leave that list out
        edit(folder, *without)
        assert read(folder, seq_len=5)[0] == config
        mixed, params = read(folder, seq_len=8)
        assert (mixed.sliding_window, mixed.layer_pattern) == (5, ("full", "window"))
        theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
        assert np.abs(Decoder(mixed).logits(params, TOKENS) - theirs).max() < 1e-4
    edit(folder, layer_types=["full_attention", "chunked_attention"])
    with pytest.raises(CannotExchange, match=r"chunked_attention and full_attention, of which"):
        read(folder, seq_len=8)


def test_missing_config_fields_have_transformers_defaults(
    saved: Callable[..., Path],
) -> None:
    folder = saved("llama", {})
    edit(folder, "head_dim", "rms_norm_eps", "rope_parameters", "tie_word_embeddings")
    config, _ = read(folder, seq_len=16)
    assert (config.head_dim, config.norm_epsilon, config.rope_theta) == (4, 1e-6, 10_000.0)
    theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
    assert np.abs(logits(folder) - theirs).max() < 1e-4


def test_a_config_as_transformers_4_wrote_it_is_read(saved: Callable[..., Path]) -> None:
    folder = saved("qwen3", {"head_dim": 4})
    edit(folder, "rope_parameters", "layer_types", rope_theta=50.0, rope_scaling=None)
    edit(folder, sliding_window=None, max_window_layers=2)
    config, _ = read(folder, seq_len=16)
    assert (config.rope_theta, config.sliding_window, config.qk_norm) == (50.0, None, "learned")
    theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
    assert np.abs(logits(folder) - theirs).max() < 1e-4

    edit(folder, use_sliding_window=True, sliding_window=5, max_window_layers=0)
    assert read(folder, seq_len=16)[0].sliding_window == 5
    theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
    assert np.abs(logits(folder) - theirs).max() < 1e-4


def test_redundant_tensors_of_old_files_are_skipped(saved: Callable[..., Path]) -> None:
    folder = saved("llama", {"tie_word_embeddings": True})
    before = logits(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(2, np.float32)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert np.array_equal(logits(folder), before)

    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CannotExchange, match=r"lm_head\.weight that is not the embedding"):
        read(folder, seq_len=16)


# ── Refused ──────────────────────────────────────────────────────────────────────────────────


def edit(folder: Path, *without: str, **fields: Any) -> None:
    path = folder / "config.json"
    declared = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: x for name, x in declared.items() if name not in without}))


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    hugging_face.fresh("llama").save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"model_type": "mistral"}, "model_type 'mistral', and llama, qwen3 and smollm3 are read"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"attention_bias": True}, "attention_bias True, and the engine's model has False"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu', and the engine's model has 'silu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "scales its rotary .*llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "scales its rotary .*linear"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_theta": "big"}}, "rope_theta big cannot be"),
        ({"num_hidden_layers": 3}, r"lacks model\.layers\.2\..*9 tensors are missing"),
        ({"num_hidden_layers": 4000}, "21 tensors and config.json 4000 layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000 cannot be"),
        ({"num_hidden_layers": 1}, r"holds model\.layers\.1\..* no place for"),
        ({"tie_word_embeddings": True}, r"an lm_head\.weight that is not the embedding"),
        ({"intermediate_size": 25}, r"shape \(24, 16\) and config.json says \(25, 16\)"),
        ({"vocab_size": 10**9}, r"embed_tokens.weight .* shape \(40, 16\)"),
        ({"num_attention_heads": 3}, "num_key_value_heads 2 .*does not divide"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps tiny cannot be"),
        ({"hidden_size": "16"}, "no whole number hidden_size"),
        ({"max_position_embeddings": 15}, "seq_len 16 is longer than the 15 positions"),
    ],
)
def test_a_model_of_another_kind_is_refused(
    llama: Path, fields: dict[str, Any], sentence: str
) -> None:
    edit(llama, **fields)
    with pytest.raises(CannotExchange, match=sentence):
        read(llama, seq_len=16)


@pytest.mark.parametrize(
    "fields",
    [{"sliding_window": "5"}, {"layer_types": 5}, {"layer_types": None, "max_window_layers": None}],
)
def test_a_window_nobody_can_place_is_refused(
    fields: dict[str, Any], saved: Callable[..., Path]
) -> None:
    folder = saved("qwen3", {"head_dim": 4, **WINDOW})
    edit(folder, **fields)
    with pytest.raises(CannotExchange, match="does not say where its sliding window is"):
        read(folder, seq_len=16)


def test_files_that_cannot_be_read_are_refused(llama: Path) -> None:
    def refused(sentence: str) -> None:
        with pytest.raises(CannotExchange, match=sentence):
            read(llama, seq_len=16)

    weights = llama / "model.safetensors"
    whole = weights.read_bytes()
    tensors = load_file(weights)
    save_file({name: x.astype(np.float64) for name, x in tensors.items()}, weights)
    refused("stored as F64, and F32, BF16, F16 are read")
    weights.write_bytes(whole[:-1])
    refused("cannot be read: .*; download them again")
    weights.write_bytes(b"\x80\x04junk")
    refused("cannot be read")
    weights.unlink()
    refused("has no model.safetensors")
    (llama / "pytorch_model.bin").write_bytes(b"\x80\x04junk")
    refused("a pickle can run code, so it is not read")
    (llama / "config.json").write_text("[" * 100_000)
    refused("config.json cannot be read")
    (llama / "config.json").write_text("[]")
    refused("not a JSON object")
    (llama / "config.json").unlink()
    refused("name a folder with a model")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("../model.safetensors", "not a safetensors file beside it"),
        ("/etc/model.safetensors", "not a safetensors file beside it"),
        ("model.bin", "not a safetensors file beside it"),
        ("gone.safetensors", "gone.safetensors, which is missing"),
        ("nul\0.safetensors", "which is missing"),
    ],
)
def test_an_index_names_only_files_beside_it(llama: Path, name: str, sentence: str) -> None:
    folder = llama / "inside"
    folder.mkdir()
    (llama / "config.json").rename(folder / "config.json")
    where = {"model.embed_tokens.weight": name}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    with pytest.raises(CannotExchange, match=sentence):
        read(folder, seq_len=16)
