import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hugging_face
import jax
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

from engine.config.schema import ComputeConfig, ModelConfig
from engine.data.tokenize import Tokenizer, byte_tokenizer, train_bpe
from engine.model.decoder import Decoder, Params, Role, SwiGLU
from engine.training.architectures import CannotExchange
from engine.training.export import export
from engine.training.pretrained import read

TOKENS = np.random.default_rng(1).integers(0, 40, (2, 12)).astype(np.int32)


def shape(**fields: Any) -> ModelConfig:
    tiny = {"hidden_dim": 16, "intermediate_dim": 24, "num_layers": 2, "num_heads": 4}
    if "moe" in fields:
        del tiny["intermediate_dim"]
    return ModelConfig(**{**tiny, "seq_len": 16, "vocab_size": 40, **fields})


LLAMA = shape(num_kv_heads=2)
SCALED = {"factor": 4.0, "original_seq_len": 6}
MOE = {"num_experts": 4, "top_k": 2, "expert_dim": 12, "scores": "softmax", "balance": "auxiliary"}
SHAPES = {
    "llama with grouped queries": LLAMA,
    "llama with tied embeddings": shape(tie_word_embeddings=True, norm_epsilon=0.01),
    "llama with wide heads": shape(num_heads=2, num_kv_heads=1, head_dim=12, rope_theta=50.0),
    "qwen3 with grouped queries": shape(num_kv_heads=1, qk_norm="learned", rope_theta=50.0),
    "qwen3 with odd heads": shape(hidden_dim=20, num_heads=3, head_dim=12, qk_norm="learned"),
    "qwen3 with a window": shape(qk_norm="learned", sliding_window=5, tie_word_embeddings=True),
    "qwen3 with windows by layer": shape(
        num_layers=3, qk_norm="rms", sliding_window=4, layer_pattern=["window", "full"]
    ),
    "mistral with a window": shape(sliding_window=5),
    "mistral with odd heads": shape(hidden_dim=18, head_dim=4, rope_scaling=SCALED),
    "llama with biases": shape(attention_bias="all", num_kv_heads=2, rope_scaling=SCALED),
    "qwen2": shape(attention_bias="qkv", num_kv_heads=2, tie_word_embeddings=True),
    "qwen2 with windows by layer": shape(
        attention_bias="qkv", num_layers=3, sliding_window=4, layer_pattern=["full", "window"]
    ),
    "qwen3 with biases": shape(attention_bias="all", qk_norm="learned", head_dim=6),
    "olmo2": shape(norm_position="after", qk_norm="whole", num_kv_heads=2, rope_theta=50.0),
    "olmo2 with odd heads": shape(
        norm_position="after", qk_norm="whole", hidden_dim=18, head_dim=4, attention_bias="all"
    ),
    "smollm3 with biases": shape(layer_pattern=["nope", "full"], attention_bias="all"),
    "mixtral": shape(moe=MOE, num_kv_heads=2, sliding_window=5),
    "qwen3_moe": shape(moe=MOE | {"weight_sum": 2.5}, qk_norm="rms", num_kv_heads=2),
    "qwen3_moe of one expert": shape(moe=MOE | {"top_k": 1}, qk_norm="learned", sliding_window=5),
    "smollm3 with windows and no rotary": shape(
        num_layers=5,
        sliding_window=4,
        layer_pattern=["window", "window", "nope"],
        last_layer="nope",
    ),
    "smollm3 without rotary": shape(num_layers=3, layer_pattern=["nope", "full"]),
    "qwen3 for a norm without weights": shape(num_kv_heads=2, qk_norm="rms"),
}


@pytest.fixture(scope="module")
def drawn() -> Callable[[Decoder], Params]:
    """Parameters in which every single number matters, gains too."""

    def draw(decoder: Decoder) -> Params:
        random = np.random.default_rng(2)
        like = jax.eval_shape(decoder.init, jax.random.key(0))
        moe = decoder.config.moe
        still = moe is not None and moe.balance == "auxiliary"  # its states change nothing

        def one(x: jax.ShapeDtypeStruct, role: Role) -> np.ndarray:
            noise = random.normal(float(role == "gain"), 0.3, x.shape).astype(np.float32)
            return 0 * noise if role == "state" and still else noise

        return jax.tree.map(one, like, decoder.roles())

    return draw


@pytest.fixture
def exported(drawn: Callable[[Decoder], Params], tmp_path: Path) -> Path:
    export(tmp_path / "out", Decoder(LLAMA), drawn(Decoder(LLAMA)))
    return tmp_path / "out"


# ── Out ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_transformers_computes_our_logits(
    config: ModelConfig, drawn: Callable[[Decoder], Params], tmp_path: Path
) -> None:
    decoder = Decoder(config)
    params = drawn(decoder)
    export(tmp_path, decoder, params)
    theirs = hugging_face.logits_of(hugging_face.load(tmp_path))(TOKENS)
    ours = np.asarray(decoder.logits(params, TOKENS))
    assert np.abs(ours).max() > 1  # or agreement would say little
    assert np.abs(ours - theirs).max() < 1e-4


def test_a_large_model_is_several_files(
    exported: Path, drawn: Callable[[Decoder], Params], tmp_path: Path
) -> None:
    params = drawn(Decoder(LLAMA))
    export(tmp_path / "cut", Decoder(LLAMA), params, shard_bytes=6_000)
    index = json.loads((tmp_path / "cut/model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "cut").glob("*.safetensors"))
    assert sorted(set(index["weight_map"].values())) == files
    assert len(files) == 4
    assert files[0] == "model-00001-of-00004.safetensors"
    assert (
        max((tmp_path / "cut" / name).stat().st_size for name in files) < 6_000 + 1_000
    )  # and a header
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in jax.tree.leaves(params))
    whole, cut = (hugging_face.load(x).state_dict() for x in (exported, tmp_path / "cut"))
    assert all(bool((cut[name] == x).all()) for name, x in whole.items())


def test_bfloat16_is_rounded_and_half_the_size(
    exported: Path, drawn: Callable[[Decoder], Params], tmp_path: Path
) -> None:
    export(tmp_path / "half", Decoder(LLAMA), drawn(Decoder(LLAMA)), dtype="bfloat16")
    sizes = [(x / "model.safetensors").stat().st_size for x in (exported, tmp_path / "half")]
    assert sizes[1] < 0.6 * sizes[0]
    assert str(hugging_face.load(tmp_path / "half").dtype) == "torch.bfloat16"
    _, back = read(tmp_path / "half", seq_len=16)
    for x, rounded in zip(
        jax.tree.leaves(drawn(Decoder(LLAMA))), jax.tree.leaves(back), strict=True
    ):
        assert np.array_equal(x.astype(ml_dtypes.bfloat16).astype(np.float32), rounded)


def test_no_tokens_of_llamas_own_vocabulary_begin_or_end_a_text(exported: Path) -> None:
    model = hugging_face.load(exported)
    for declared in (model.config, model.generation_config):
        assert declared.bos_token_id is declared.eos_token_id is declared.pad_token_id is None
    assert model.config.max_position_embeddings == 16


class OtherMLP(SwiGLU):
    pass


@dataclass(frozen=True)
class OtherDecoder(Decoder):
    pass


class Gate(nnx.Module):
    pass


@pytest.mark.parametrize(
    ("decoder", "sentence"),
    [
        (Decoder(shape(logit_soft_cap=30.0)), "logit_soft_cap: 30.*train without"),
        (Decoder(shape(gated_norm=4)), "has gated_norm: 4, which none .* keep Orbax"),
        (Decoder(shape(attention_gate=True)), "has attention_gate: true, which none of them has "),
        (Decoder(shape(exclusive_attention=True)), "has exclusive_attention: true"),
        (Decoder(shape(short_convolution=4)), "has short_convolution: 4"),
        (
            Decoder(shape(rope_fraction=0.5)),
            "the model has rope_fraction: 0.5, which none of them has",
        ),
        (Decoder(shape(layer_pattern=["linear", "full"])), "the model has linear layers"),
        (
            Decoder(shape(layer_pattern=["nope", "full"], qk_norm="rms")),
            "has nope layers and qk_norm of each head, which none of them has together",
        ),
        (Decoder(shape(qk_norm="whole")), "has qk_norm: whole, and theirs go with norm_position"),
        (
            Decoder(shape(attention_bias="qkv", qk_norm="learned")),
            "has attention_bias: qkv and qk_norm of each head, which none of them has together",
        ),
        (
            Decoder(shape(moe=MOE | {"scores": "sigmoid"})),
            "has experts weighed by sigmoids, which none of",
        ),
        (Decoder(shape(moe=MOE | {"latent_dim": 4})), "has experts on a latent_dim, which none"),
        (
            Decoder(shape(moe=MOE | {"balance": "bias"})),
            "has a bias in the choice of experts, which none of them has",
        ),
        (Decoder(LLAMA, mlp=OtherMLP), "decoder's mlp is OtherMLP, which no architecture of trans"),
        (Decoder(LLAMA, norm=Gate), "decoder's norm is Gate"),
        (OtherDecoder(LLAMA), "a OtherDecoder of its own"),
        (Decoder(shape(num_kv_heads=4)), "another model: blocks/attention/k_proj is"),
    ],
)
def test_a_model_that_no_architecture_holds_is_refused_with_the_part(
    decoder: Decoder, sentence: str, drawn: Callable[[Decoder], Params], tmp_path: Path
) -> None:
    params = drawn(Decoder(LLAMA if "another model" in sentence else decoder.config))
    with pytest.raises(CannotExchange, match=sentence):
        export(tmp_path / "out", decoder, params)
    assert not (tmp_path / "out").exists()


def test_compute_options_do_not_change_the_export(
    drawn: Callable[[Decoder], Params], tmp_path: Path
) -> None:
    decoder = Decoder(LLAMA, compute=ComputeConfig(layers="unroll", dtype="bfloat16"))
    export(tmp_path, decoder, drawn(decoder))
    assert str(hugging_face.load(tmp_path).dtype) == "torch.float32"


def test_an_export_overwrites_nothing(exported: Path, drawn: Callable[[Decoder], Params]) -> None:
    with pytest.raises(CannotExchange, match="not an empty folder"):
        export(exported, Decoder(LLAMA), drawn(Decoder(LLAMA)))


# ── Tokenizers ───────────────────────────────────────────────────────────────────────────────

TEXTS = [
    "row, row, row your boat\n\n  gently\tdown  the stream",
    " don't strip me \r\n",
    "".join(map(chr, [*range(0x300), 0x2028, 0x4E00, 0xFB01, 0x1F6A3, 0x10FFFF])),
    "e\u0301 and é stay apart",
    "<s> </s> [UNK] ▁",
    "",
]


@pytest.mark.parametrize("config", [LLAMA, SHAPES["qwen3 with a window"]], ids=["llama", "qwen3"])
@pytest.mark.parametrize("made", [byte_tokenizer, lambda: train_bpe(TEXTS, 300)])
def test_transformers_reads_the_tokenizer_as_ours(
    config: ModelConfig,
    made: Callable[[], Tokenizer],
    drawn: Callable[[Decoder], Params],
    tmp_path: Path,
) -> None:
    tokenizer = made()
    decoder = Decoder(config.model_copy(update={"vocab_size": 320}))  # padded, as models often are
    export(tmp_path, decoder, drawn(decoder), tokenizer)
    theirs = hugging_face.tokenizer(tmp_path)
    assert len(theirs) == tokenizer.vocab_size
    for text, ids in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
        assert theirs(text)["input_ids"] == ids.tolist()
        assert theirs.decode(ids.tolist()) == text
    eos = hugging_face.load(tmp_path).generation_config.eos_token_id
    assert eos == tokenizer.end_of_document


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused(
    drawn: Callable[[Decoder], Params], tmp_path: Path
) -> None:
    with pytest.raises(CannotExchange, match=r"has 256 tokens and the model .* of 40"):
        export(tmp_path, Decoder(LLAMA), drawn(Decoder(LLAMA)), byte_tokenizer())
