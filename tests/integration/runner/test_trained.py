"""What training left is read as a claim: no further than it can be long, and in its shapes only."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

from engine.model.plain import PlainConfig, PlainModel
from engine.training.digest import tree_sha256
from runner.lib.own_code_errors import BadOwnCode
from runner.worker.models import params_file, trained

PARAMS = {"a/w": np.ones((3, 4), np.float32), "b": np.zeros(2, np.float32)}
CONFIG = {"seq_len": 8, "vocab_size": 16}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    safetensors.numpy.save_file(PARAMS, tmp_path / "params.safetensors")
    (tmp_path / "model.json").write_text(json.dumps(CONFIG))
    (tmp_path / "own.json").write_text(json.dumps({"model": "model:Mine"}))
    return tmp_path


def model(shape: tuple[int, ...] = (3, 4)) -> PlainModel:
    like = {"a": {"w": np.zeros(shape, np.float32)}, "b": np.zeros(2, np.float32)}
    return PlainModel(
        lambda _: jax.tree.map(jax.numpy.asarray, like), lambda *_: 0, PlainConfig(16, 8)
    )


def test_an_honest_folder_is_read_whole(folder: Path) -> None:
    assert trained.planned(folder) == (CONFIG, "model:Mine")
    params = trained.params_of(folder, model())
    np.testing.assert_array_equal(params["a"]["w"], PARAMS["a/w"])
    assert params_file.measured(folder) == (tree_sha256(PARAMS), 14)
    assert tree_sha256(params) == tree_sha256(PARAMS)
    assert set(params_file.arrays_of(folder)) == set(PARAMS)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"seq_len": 8}' * 2,
        b'{"seq_len": 8, "vocab_size": 1e400}',
        b'{"seq_len": 8, "vocab_size": -1}',
        b'{"seq_len": 8, "vocab_size": ' + b"9" * 5000 + b"}",
        b'{"seq_len": "many"}',
    ],
)
def test_a_description_that_says_nothing_sensible_is_refused_in_words(
    folder: Path, said: bytes
) -> None:
    (folder / "model.json").write_bytes(said)
    with pytest.raises(BadOwnCode, match=r"model\.json"):
        trained.planned(folder)


@pytest.mark.parametrize("name", ["model.json", "own.json"])
def test_a_sparse_file_of_gigabytes_is_refused_and_not_read(folder: Path, name: str) -> None:
    os.truncate(folder / name, 3 << 30)
    with pytest.raises(BadOwnCode, match="larger than"):
        trained.planned(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 1 << 40),
        struct.pack("<Q", 2) + b"{}" + b"more",
        struct.pack("<Q", 20) + b'{"a":{"dtype":"F32",',
    ],
)
def test_parameters_that_are_none_are_refused_in_words(folder: Path, content: bytes) -> None:
    (folder / "params.safetensors").write_bytes(content)
    for read in (
        params_file.measured,
        params_file.arrays_of,
        lambda of: trained.params_of(of, model()),
    ):
        with pytest.raises(BadOwnCode, match=r"params\.safetensors"):
            read(folder)
    (folder / "params.safetensors").unlink()
    os.mkfifo(folder / "params.safetensors")
    with pytest.raises(BadOwnCode, match=r"params\.safetensors"):
        params_file.measured(folder)


def test_parameters_of_another_model_are_named(folder: Path) -> None:
    with pytest.raises(BadOwnCode, match=r"a/w as \(3, 4\), and the model's is \(4, 4\)"):
        trained.params_of(folder, model((4, 4)))
    safetensors.numpy.save_file({"a/w": PARAMS["a/w"]}, folder / "params.safetensors")
    with pytest.raises(BadOwnCode, match="b as nothing"):
        trained.params_of(folder, model())
    safetensors.numpy.save_file(
        PARAMS | {"b": np.zeros(2, np.float64)}, folder / "params.safetensors"
    )
    with pytest.raises(BadOwnCode, match="float64"):
        trained.params_of(folder, model())


def test_the_asking_process_has_limits_and_its_children_do_not() -> None:
    """A process that watches takes no more memory and time than the step may."""
    script = """
import resource, subprocess, sys, time
from runner.lib import process_tree as guard
import numpy
guard.hold_to(400 << 20, 100)
try:
    numpy.zeros(1 << 27)
    print("too much")
except MemoryError:
    print("memory")
subprocess.run([sys.executable, "-c", "bytearray(600 << 20); print('child', flush=True)"],
               preexec_fn=guard.let_go, check=True)
guard.hold_to(400 << 20, 0.2)
try:
    time.sleep(20)
except TimeoutError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.stdout.split("\n")[:3] == ["memory", "child", "it took longer than 0.2 s"]
