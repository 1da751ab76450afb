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
import transformers
from safetensors.numpy import load_file, save_file

from engine.model.decoder import Decoder, Params
from engine.training.architectures import CannotExchange
from engine.training.export import export
from engine.training.pretrained import read

TOKENS = np.random.default_rng(1).integers(0, 40, (2, 12)).astype(np.int32)

SLIDES = ["sliding_attention", "full_attention"]
WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}
ROPE = {"rope_type": "default", "rope_theta": 50.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 50.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 6,  # half of what is tried
}
NO_TOKENS = {"pad_token_id": None, "eos_token_id": None}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "norm_topk_prob": True,
    "head_dim": 4,
}
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
    "llama 3.1": ("llama", {"rope_parameters": LLAMA3}),
    "llama 3.2, tied": ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama with biases": ("llama", {"attention_bias": True}),
    "qwen2": ("qwen2", {}),
    "qwen2.5, tied": ("qwen2", {"tie_word_embeddings": True, "rope_parameters": ROPE}),
    "qwen2 with windows by layer": ("qwen2", WINDOW | {"max_window_layers": 1}),
    "mistral 0.1, longer than its window": ("mistral", {"sliding_window": 5}),
    "mistral 0.3": ("mistral", {"sliding_window": None, "rope_parameters": ROPE}),
    "mistral nemo": ("mistral", {"sliding_window": None, "head_dim": 12}),
    "olmo2": ("olmo2", NO_TOKENS),
    "olmo2 with biases": ("olmo2", {"attention_bias": True, "rope_parameters": ROPE, **NO_TOKENS}),
    "olmo3": ("olmo3", {"layer_types": SLIDES, "sliding_window": 5, **NO_TOKENS}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "sliding_window": 5}),
    "qwen3 with experts": ("qwen3_moe", EXPERTS),
    "qwen3 with one expert": (
        "qwen3_moe",
        EXPERTS | {"num_experts_per_tok": 1, "norm_topk_prob": False},
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder for a model that transformers initialised and saved."""

    def save(kind: str, fields: dict[str, Any], seed: int = 5, **how: Any) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        hugging_face.fresh(kind, seed, **fields).save_pretrained(folder, **how)
        return folder

    return save


def logits(folder: Path, seq_len: int = 16) -> np.ndarray:
    config, params = read(folder, seq_len)
    return np.asarray(Decoder(config).logits(params, TOKENS))


@pytest.mark.parametrize("seed", [5, 6, 7])
@pytest.mark.parametrize(("kind", "fields"), MODELS.values(), ids=MODELS)
def test_our_logits_are_those_of_transformers_on_both_ways(
    kind: str, fields: dict[str, Any], seed: int, saved: Callable[..., Path], tmp_path: Path
) -> None:
    folder = saved(kind, fields, seed)
    theirs = hugging_face.logits_of(hugging_face.load(folder))(TOKENS)
    assert np.abs(theirs).max() > 0.5  # or agreement would say little
    assert np.abs(logits(folder) - theirs).max() < 1e-5
    config, params = read(folder, seq_len=16)
    if kind == "olmo3":
        with pytest.raises(CannotExchange, match="a window on some layers only"):
            export(tmp_path, Decoder(config), params)
        return
    export(tmp_path, Decoder(config), params)
    back = hugging_face.load(tmp_path)
    plain = kind == "mistral" and not fields["sliding_window"]  # which is a llama
    assert back.config.model_type == ("llama" if plain else kind)
    assert np.abs(hugging_face.logits_of(back)(TOKENS) - theirs).max() < 1e-5
    assert read(tmp_path, seq_len=16)[0] == config


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("llama", {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 40}}),
        ("mistral", {"sliding_window": 24}),
    ],
)
def test_a_long_text_is_read_alike(
    kind: str, fields: dict[str, Any], saved: Callable[..., Path]
) -> None:
    folder = saved(kind, fields | {"max_position_embeddings": 256, "initializer_range": 0.1})
    text = np.random.default_rng(3).integers(0, 40, (1, 200)).astype(np.int32)
    config, params = read(folder, None)
    theirs = hugging_face.logits_of(hugging_face.load(folder))(text)
    assert np.abs(Decoder(config).logits(params, text) - theirs).max() < 1e-5


@pytest.mark.slow  # 100 models; those that the tests above name are read each day
def test_whatever_transformers_has_is_computed_alike_or_refused(tmp_path: Path) -> None:
    names = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    read_alike = []
    for kind in names:
        fields = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "head_dim": 4}
        try:
            with torch.device("meta"):
                sizes = [x.numel() for x in hugging_face.fresh(kind, **fields).parameters()]
            if sum(sizes) > 3_000_000:
                continue
            hugging_face.fresh(kind, **fields).save_pretrained(tmp_path / kind)
            theirs = hugging_face.logits_of(hugging_face.load(tmp_path / kind))(TOKENS)
        except Exception:
            continue
        try:
            config, params = read(tmp_path / kind, seq_len=16)
        except CannotExchange:
            continue
        assert np.abs(Decoder(config).logits(params, TOKENS) - theirs).max() < 1e-4, kind
        read_alike.append(kind)
    assert {"llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3"} <= set(read_alike)


def test_a_model_that_names_no_known_architecture_is_judged_by_its_fields(
    saved: Callable[..., Path],
) -> None:
    folder = saved("qwen2", {})
    before = logits(folder)
    edit(folder, model_type="our-own", architectures=["OurOwnForCausalLM"])
    assert np.array_equal(logits(folder), before)
    edit(folder, "rms_norm_eps")
    with pytest.raises(CannotExchange, match="has no rms_norm_eps"):
        read(folder, seq_len=16)


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
    with pytest.raises(CannotExchange, match=r"chunked_attention and full_attention .*, of which"):
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
        ({"model_type": "helium"}, "a helium has rotary positions of neighbouring dimensions"),
        ({"attention_bias": True}, "attention_bias true, and its tensors have no biases"),
        ({"mlp_bias": True}, "`mlp_bias` is true, and only false is read"),
        ({"hidden_act": "gelu"}, '`hidden_act` is "gelu", and only "silu" is read'),
        ({"quantization_config": {"bits": 4}}, "`quantization_config` is"),
        ({"auto_map": {"AutoModel": "m.M"}}, "`auto_map` is"),
        (
            {"embedding_multiplier": 12},
            "`embedding_multiplier` is 12, a field that the lab does not",
        ),
        ({"mlp_bias": True, "logit_scale": 2}, "mlp_bias.*; `logit_scale` is 2, a field"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "`rope_scaling` of type yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "`rope_scaling` of type linear"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling .* cannot be"),
        ({"rope_parameters": {"mrope_section": [1]}}, "`rope_scaling` has mrope_section"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 5}, "sliding_attention": {}}},
            "positions that differ by type of layer",
        ),
        ({"sliding_window": 5}, "which transformers passes over in a llama and other tools do not"),
        ({"num_local_experts": 4}, "its experts are weighed in a way that no field says"),
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
