import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy_decoder
import pytest
from jax._src.cudnn import fused_attention_stablehlo as cudnn_internals

from engine.model import attention, kernels
from engine.model.attention import attend, fast_path, reference

ODD = 150  # two blocks of 64 on a CPU, and a part of one
Arrays = tuple[jax.Array, ...]


def drawn(
    seq_len: int, kv_heads: int, head_dim: int = 8, dtype: type = jnp.float32, batch: int = 2
) -> Arrays:
    """Random q (of 4 heads), k, v, and a direction to pull the output in."""
    keys = jax.random.split(jax.random.key(0), 4)
    return tuple(
        jax.random.normal(key, (batch, seq_len, heads, head_dim), dtype)
        for key, heads in zip(keys, (4, kv_heads, kv_heads, 4), strict=True)
    )


def documents(seq_len: int) -> jax.Array:
    """Two rows: three documents and padding; one document."""
    row = np.repeat([1, 2, 3, 0], [seq_len // 3, seq_len // 2, seq_len, seq_len])
    row[seq_len - seq_len // 8 : seq_len] = 0
    return jnp.asarray(np.stack((row[:seq_len], np.ones(seq_len, int))), jnp.int32)


@partial(jax.jit, static_argnums=(0, 6))
def both_ways(
    path: Callable[..., jax.Array],
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    direction: jax.Array,
    segments: jax.Array | None,
    window: int | None,
) -> Arrays:
    """The output, and the gradients by q, k and v."""
    out, pull = jax.vjp(lambda q, k, v: path(q, k, v, segments, window), q, k, v)
    return out, *pull(direction)


def assert_same(ours: Arrays, theirs: Arrays, atol: float = 1e-5) -> None:
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.dtype == yours.dtype
        np.testing.assert_allclose(
            mine.astype(jnp.float32), yours.astype(jnp.float32), rtol=1e-5, atol=atol
        )


@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("window", [None, 1, 5])
def test_the_reference_is_the_definition(window: int | None, segmented: bool) -> None:
    q, k, v, _ = drawn(seq_len=12, kv_heads=2)
    segments = documents(12) if segmented else None
    out = np.asarray(reference(q, k, v, segments, window))
    for b in range(2):
        sees = numpy_decoder.visible(12, window, None if segments is None else segments[b])
        for head in range(4):
            one = (np.asarray(x[b, :, i]) for x, i in ((q, head), (k, head // 2), (v, head // 2)))
            expected = numpy_decoder.attend(*one, sees)
            np.testing.assert_allclose(out[b, :, head], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("seq_len", "kv_heads", "window", "segmented"),
    [
        (1, 4, None, False),
        (64, 1, None, False),
        (ODD, 4, None, False),
        (ODD, 2, None, True),
        (ODD, 2, 1, False),
        (ODD, 2, 64, True),
        (ODD, 1, 73, False),
        (ODD, 2, ODD, False),
    ],
)
def test_blocked_attention_and_its_gradient_are_those_of_the_reference(
    seq_len: int, kv_heads: int, window: int | None, segmented: bool
) -> None:
    arrays = *drawn(seq_len, kv_heads), documents(seq_len) if segmented else None, window
    assert_same(both_ways(kernels.blocked, *arrays), both_ways(reference, *arrays))


def test_blocked_attention_takes_heads_of_any_size_and_half_precision() -> None:
    arrays = *drawn(65, kv_heads=2, head_dim=10, dtype=jnp.bfloat16), None, None
    assert_same(both_ways(kernels.blocked, *arrays), both_ways(reference, *arrays), atol=0.05)


def test_blocked_attention_never_multiplies_what_a_window_hides() -> None:
    """With a window, twice the length is about twice the work: no square."""

    def flops(seq_len: int, window: int | None) -> float:
        arrays = *drawn(seq_len, kv_heads=2), None, window
        return both_ways.lower(kernels.blocked, *arrays).cost_analysis()["flops"]

    assert flops(512, window=64) < 2.2 * flops(256, window=64)
    assert flops(512, window=None) > 3 * flops(256, window=None)


@pytest.mark.parametrize(
    ("seq_len", "kv_heads", "window", "segmented"),
    [(150, 2, None, False), (128, 4, 40, True)],
)
def test_splash_attention_and_its_gradient_are_those_of_the_reference(
    seq_len: int, kv_heads: int, window: int | None, segmented: bool
) -> None:
    arrays = *drawn(seq_len, kv_heads), documents(seq_len) if segmented else None, window
    splash = partial(kernels.splash, interpret=True)
    assert_same(both_ways(splash, *arrays), both_ways(reference, *arrays))


@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_splash_attention_lowers_for_a_tpu(head_dim: int) -> None:
    """What needs no TPU of running on one: its compiler takes the kernels, their blocks and this
    head size, in both directions."""
    arrays = *drawn(600, kv_heads=2, head_dim=head_dim, dtype=jnp.bfloat16), documents(600), 100
    lowered = both_ways.trace(kernels.splash, *arrays).lower(lowering_platforms=("tpu",))
    assert lowered.as_text().count("tpu_custom_call") == 3  # forward, dq, dk and dv


@pytest.mark.parametrize("window", [None, 100])
def test_cudnn_attention_lowers_for_a_gpu(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs no GPU of running on one: XLA is handed cuDNN's causal flash attention with the
    window as it counts it, itself included. `tests/gpu` compares the figures."""
    monkeypatch.setattr(cudnn_internals, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(cudnn_internals, "check_compute_capability", lambda _: True)
    monkeypatch.setattr(cudnn_internals, "is_cuda_compute_capability_equal", lambda _: False)
    arrays = *drawn(600, kv_heads=2, head_dim=64, dtype=jnp.bfloat16), None, window
    text = both_ways.trace(kernels.cudnn, *arrays).lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r'@__cudnn\$(\w+)\(.* backend_config = "(.*?)"', text)
    assert [name for name, _ in calls] == ["fmhaSoftmax", "fmhaSoftmaxBackward"]
    for _, config in calls:
        asked = json.loads(config.replace("\\22", '"'))["cudnn_fmha_backend_config"]
        assert asked["mask_type"] == "CAUSAL"
        assert asked["sliding_window_length"] == (window or 0)
        assert asked["is_flash_attention"]


@pytest.mark.parametrize(
    ("asked", "path", "reason"),
    [
        (("cpu", jnp.float32, 10, True), kernels.blocked, None),
        (("tpu", jnp.bfloat16, 64, True), kernels.splash, None),
        (("gpu", jnp.bfloat16, 64, False), kernels.cudnn, None),
        (("gpu", jnp.bfloat16, 64, True), reference, "cannot keep packed documents apart"),
        (("gpu", jnp.float32, 64, False), reference, "the compute dtype is float32"),
        (("gpu", jnp.bfloat16, 20, False), reference, "a multiple of 8 up to 128, not 20"),
        (("gpu", jnp.bfloat16, 192, False), reference, "a multiple of 8 up to 128, not 192"),
        (("abacus", jnp.bfloat16, 64, False), reference, "for the platform abacus"),
    ],
)
def test_each_platform_has_its_path_or_a_reason(
    asked: tuple, path: attention.Path, reason: str | None
) -> None:
    platform, dtype, head_dim, segmented = asked
    chosen, why_not = fast_path(platform, jnp.dtype(dtype), head_dim, segmented)
    assert chosen is path
    assert why_not is reason is None or reason in why_not


def test_the_slow_attention_path_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attention._say_once.cache_clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    q, k, v, _ = drawn(8, kv_heads=2)
    with caplog.at_level(logging.WARNING):
        out = attend(q, k, v)
        attend(q, k, v)
        attend(q, k, v, implementation="reference")  # asked for, so nothing to say
    (record,) = caplog.records
    assert "cuDNN attention needs bfloat16" in record.message
    np.testing.assert_array_equal(out, reference(q, k, v))


@pytest.fixture(scope="module")
def on_four_devices() -> dict[str, Any]:
    script = Path(__file__).parents[2].joinpath("engine", "attend_on_devices.py")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_on_a_mesh_attention_is_that_of_the_reference(
    on_four_devices: dict[str, Any],
) -> None:
    assert max(on_four_devices["furthest"]) < 1e-5


def test_devices_that_split_the_matrices_exchange_sums_and_nothing_else(
    on_four_devices: dict[str, Any],
) -> None:
    """Queries, keys and values are joined, and gate and up, without a device asking another."""
    assert on_four_devices["exchanged"] == ["all-reduce"]
