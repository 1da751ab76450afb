"""Models that are asked for logits: honest ones are scored as they deserve, and those that look
ahead, however they hide it, have no score that counts."""

import json
import os
import runpy
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

from engine.config import flops
from engine.config.schema import ComputeConfig, ModelConfig
from engine.data.lab_texts import read_text
from engine.data.token_store import TokenStore
from engine.model.decoder import Decoder
from engine.training.evaluate import CannotScore, Evaluation, bits_per_byte
from runner.analysis import speedrun_checks
from runner.isolation import bubblewrap
from runner.lib.own_code_errors import BadOwnCode
from runner.planning import planner
from runner.worker.model_client import Asker
from runner.worker.models import look_ahead_probe
from runner.worker.models.look_ahead_probe import Examined, Place
from runner.worker.models.plugin_model import own_model
from runner.worker.models.trained import Planned
from runner.worker.step_process import EVALUATE, Job
from tests.cheats import model as cheats
from tests.cheats.here import Here
from tests.decided import KINDS

CHEATS = Path(cheats.__file__).parent
EXPERIMENTS = Path(planner.__file__).parents[2] / "experiments"
CONFIG = {"seq_len": 32, "vocab_size": 256}
TARGETS = 2048
isolated = pytest.mark.skipif(
    bool(bubblewrap.probe()),
    reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    place = tmp_path_factory.mktemp("tokens") / "validation"
    content = read_text("lab-2026-11", None).validation.decode()
    return TokenStore.build(place, [content[:12_000]])


def trained(folder: Path, name: str) -> Path:
    """What training would have left."""
    params = cheats.Honest(CONFIG).init(jax.random.key(1))
    folder.mkdir()
    arrays = {"table/w": np.asarray(params["table"]["w"])}
    safetensors.numpy.save_file(arrays, folder / "params.safetensors")
    (folder / "model.json").write_text(json.dumps(CONFIG))
    (folder / "own.json").write_text(json.dumps({"model": f"model:{name}"}))
    return folder


def planned(name: str, config: dict[str, Any] = CONFIG) -> Planned:
    return Planned(config, f"model:{name}")


def isolated_ask(tmp_path: Path, name: str, code: Path = CHEATS) -> Asker:
    (tmp_path / "scratch").mkdir()
    limits = bubblewrap.Limits(memory=4 << 30, tasks=400, file=64 << 20, seconds=120)
    own = (f"model:{name}",)
    job = Job(
        function=EVALUATE,
        config={},
        inputs={},
        out="",
        scratch=str(tmp_path / "scratch"),
        code=str(code),
        devices=KINDS["cpu"],
        own=own,
        limits=limits,
    )
    return Asker(job)


def here(name: str) -> Here:
    made = own_model(CONFIG, name, getattr(cheats, name))
    return Here(made, cheats.Honest(CONFIG).init(jax.random.key(1)))


def scored(ask: Any, model: Planned, folder: Path, text: TokenStore) -> tuple[Evaluation, Examined]:
    made = look_ahead_probe.exported(ask, model)
    found, examined = look_ahead_probe.scored(ask, model, made, folder, {"": (text, TARGETS)})
    return found[""], examined


def deserved(text: TokenStore) -> Evaluation:
    """What the honest table is worth."""
    model = own_model(CONFIG, "Honest", cheats.Honest)
    return bits_per_byte(model, model.init(jax.random.key(1)), text, TARGETS)


SNEAKS = ["AheadLate", "ByLength", "ByBatch", "ByRows", "ByEnvironment"]


@pytest.mark.parametrize("name", SNEAKS)
def test_a_model_that_looks_ahead_has_no_score_that_counts(
    text: TokenStore, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()  # what others leave in this machine's is no word of a probe
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "empty"))
    found, examined = scored(here(name), planned(name), trained(tmp_path / "m", name), text)
    assert found.bpb < deserved(text).bpb - 1, "it would have been worth it"
    assert examined.largest > 1
    assert "when it sees the whole window, and" in examined.void
    assert "at position " in examined.void
    assert speedrun_checks.named(examined.void).check == "prefixes"


def test_a_model_that_gives_no_probabilities_on_random_text_is_void(
    text: TokenStore, tmp_path: Path
) -> None:
    folder = trained(tmp_path / "m", "OnlyText")
    found, examined = scored(here("OnlyText"), planned("OnlyText"), folder, text)
    assert found.bpb == pytest.approx(deserved(text).bpb, rel=1e-4), "on text it is honest"
    assert speedrun_checks.named(examined.void).check == "probabilities"


@pytest.mark.parametrize("name", ["Honest", "InBfloat16", "Unnormalised"])
def test_honest_models_pass_with_the_same_bits(text: TokenStore, tmp_path: Path, name: str) -> None:
    found, examined = scored(here(name), planned(name), trained(tmp_path / "m", name), text)
    assert (examined.largest, examined.void) == (0.0, "")
    assert examined.positions == TARGETS
    if name == "Unnormalised":
        assert found.bpb == pytest.approx(deserved(text).bpb, abs=1e-6)


DECODER = {"hidden_dim": 16, "intermediate_dim": 32, "num_layers": 2, "num_heads": 2, "seq_len": 32}


@pytest.mark.parametrize("name", ["gated-attention", "parallel-block"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_shipped_examples_pass(text: TokenStore, tmp_path: Path, name: str, dtype: str) -> None:
    module = runpy.run_path(str(EXPERIMENTS / name / "model.py"))
    key, part = {"g": ("attention", "GatedAttention"), "p": ("block", "ParallelBlock")}[name[0]]
    compute = ComputeConfig.model_validate({"dtype": dtype})
    decoder = Decoder(ModelConfig.model_validate(DECODER), compute, **{key: module[part]})
    ask = Here(decoder, decoder.init(jax.random.key(2)))
    _, examined = scored(ask, planned(name), tmp_path, text)
    assert (examined.largest, examined.void) == (0.0, "")


@isolated
@pytest.mark.long
def test_isolated_the_shipped_example_passes_and_its_gates_are_counted(
    text: TokenStore, tmp_path: Path
) -> None:
    code = EXPERIMENTS / "gated-attention"
    params = runpy.run_path(str(code / "model.py"))["gated"](DECODER).init(jax.random.key(2))
    folder = tmp_path / "m"
    folder.mkdir()
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(params))
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}
    safetensors.numpy.save_file(named, folder / "params.safetensors")
    (folder / "model.json").write_text(json.dumps(DECODER | CONFIG))
    (folder / "own.json").write_text(json.dumps({"model": "model:gated"}))
    _, examined = scored(
        isolated_ask(tmp_path, "gated", code), planned("gated", DECODER | CONFIG), folder, text
    )
    assert (examined.largest, examined.void) == (0.0, "")
    plain = flops.forward_flops_per_token(ModelConfig.model_validate(DECODER))
    assert examined.forward_flops_per_token is not None
    assert plain < examined.forward_flops_per_token < plain * 1.05


@isolated
def test_an_isolated_model_is_scored_like_one_here_and_counted(
    text: TokenStore, tmp_path: Path
) -> None:
    ask = isolated_ask(tmp_path, "InBfloat16")
    model = planned("InBfloat16")
    found, examined = scored(ask, model, trained(tmp_path / "m", "InBfloat16"), text)
    same = scored(here("InBfloat16"), model, tmp_path / "m", text)[0]
    assert found.bpb == pytest.approx(same.bpb, rel=1e-4)
    assert (examined.positions, examined.largest, examined.void) == (TARGETS, 0.0, "")
    window = 2 * 32 * 32 * 256 * 2 + 3 * 32 * 32  # two products and a softmax
    assert examined.forward_flops_per_token == window // 32


@isolated
def test_an_isolated_model_starts_python_twice_once_for_its_program_and_once_for_all_questions(
    text: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, own = bubblewrap.run, []

    def counted(box: bubblewrap.Box, *words: Any, **more: Any) -> bubblewrap.Ended:
        own.append(box.own)
        return run(box, *words, **more)

    monkeypatch.setattr(bubblewrap, "run", counted)
    scored(
        isolated_ask(tmp_path, "Honest"), planned("Honest"), trained(tmp_path / "m", "Honest"), text
    )
    assert own == [CHEATS, None], "its code is where no token is"


@isolated
def test_an_isolated_model_that_writes_down_what_it_sees_finds_nothing_again(
    text: TokenStore, tmp_path: Path
) -> None:
    ask = isolated_ask(tmp_path, "ByFile")
    found, examined = scored(ask, planned("ByFile"), trained(tmp_path / "m", "ByFile"), text)
    assert found.bpb < deserved(text).bpb - 1
    assert examined.void
    assert "pure_callback" in examined.uncounted
    left = [path for path in cheats.LEFT if path.exists()]
    assert not left, "what it wrote went with its process"


@isolated
def test_an_isolated_model_that_remembers_in_the_kernels_pages_has_no_score_that_counts(
    text: TokenStore, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    shutil.copytree(CHEATS, code)
    (code / "table.bin").touch()
    os.truncate(code / "table.bin", 256 << 20)
    ask = isolated_ask(tmp_path, "ByPages", code)
    _, examined = scored(ask, planned("ByPages"), trained(tmp_path / "m", "ByPages"), text)
    assert "it cannot be exported" in examined.void
    assert speedrun_checks.named(examined.void).check == "memory"


@isolated
@pytest.mark.long
@pytest.mark.parametrize("name", SNEAKS)
def test_isolated_who_looks_ahead_has_no_score_that_counts(
    text: TokenStore, tmp_path: Path, name: str
) -> None:
    _, examined = scored(
        isolated_ask(tmp_path, name), planned(name), trained(tmp_path / "m", name), text
    )
    assert examined.largest > 1
    assert "at position " in examined.void


@isolated
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Ahead", "the logits at a position change with the tokens after it"),
        ("Infinite", "the logits give no probabilities"),
        ("Rude", "cannot be read|ended"),
    ],
)
def test_isolated_what_gives_no_predictions_has_no_score(
    text: TokenStore, tmp_path: Path, name: str, words: str
) -> None:
    with pytest.raises((CannotScore, BadOwnCode), match=words):
        scored(isolated_ask(tmp_path, name), planned(name), trained(tmp_path / "m", name), text)


@isolated
@pytest.mark.long
def test_isolated_what_it_says_of_its_flops_is_its_own_word(
    text: TokenStore, tmp_path: Path
) -> None:
    """Which is why such rows are ranked by what was measured: see test_entered."""
    found, examined = scored(
        isolated_ask(tmp_path, "Cheap"),
        planned("Cheap"),
        trained(tmp_path / "m", "Cheap"),
        text,
    )
    assert examined.forward_flops_per_token == 0
    assert found.bpb == pytest.approx(deserved(text).bpb, rel=1e-4)


@isolated
def test_isolated_code_cannot_see_the_shipped_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the lab is installed among the libraries, and the bot lies beside the runner."""
    everything = [*bubblewrap._code(), bubblewrap.LAB / "bot"]
    monkeypatch.setattr(bubblewrap, "_code", lambda: everything)
    assert all(any(path.iterdir()) for path in bubblewrap.HIDDEN)
    for path in bubblewrap.HIDDEN:
        seen = subprocess.run(
            bubblewrap.command(bubblewrap.Box(), ["/bin/ls", "-A", str(path)]),
            capture_output=True,
            check=True,
        )
        assert seen.stdout == b""
        assert not bubblewrap.shows(path / "a file")
    others = [bubblewrap.LAB / name for name in ("tests", "docs", "README.md")]
    assert not [path for path in others if bubblewrap.shows(path)]


@isolated
def test_isolated_code_cannot_see_the_shipped_text_below_usr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Below /usr, which every box shows, and which is none of the lab's own folders."""
    monkeypatch.setattr(bubblewrap, "HIDDEN", (Path("/usr/share"),))
    assert any(Path("/usr/share").iterdir())
    seen = subprocess.run(
        bubblewrap.command(bubblewrap.Box(), ["/bin/ls", "-A", "/usr/share"]),
        capture_output=True,
        check=True,
    )
    assert seen.stdout == b""


# ── What is asked again ──────────────────────────────────────────────────────────────────────


def test_a_prefix_is_the_window_as_far_as_its_place_and_random_after_it() -> None:
    whole = np.arange(3000, dtype=np.int32) + 300  # every token tells its place
    windows = {"": np.stack([whole[n : n + 33] for n in range(0, 2048, 32)])}
    rng = np.random.default_rng(5)
    places = look_ahead_probe.drawn(rng, {"": np.ones((64, 32), bool)})
    batches = look_ahead_probe.batched(places, 16)
    assert sorted(place for some in batches for place in some) == sorted(places)
    assert len(batches) < 1.5 * len(places) / 16
    for batch in batches:
        tokens, positions = look_ahead_probe.prefixes(rng, batch, windows, 16, 256)
        for place in batch:
            row = place.window % 16  # as in the batch of its whole window
            assert positions[row] == place.position
            known = place.position + 1
            assert (tokens[row, :known] == windows[""][place.window, :known]).all()
            assert (tokens[row, known:] < 256).all()
            others = np.delete(tokens, row, axis=0)
            assert windows[""][place.window, known] not in others, "no row tells another's"


def test_positions_are_others_each_time_and_only_scored_ones() -> None:
    mask = np.zeros((100, 64), bool)
    mask[:90] = True
    once, again = (look_ahead_probe.drawn(np.random.default_rng(n), {"": mask}) for n in (1, 2))
    assert len(once) == len(set(once)) == look_ahead_probe.PROBES
    assert once != again
    assert max(place.window for place in once) < 90
    assert Place("", 3, 7).position == 7


def test_a_logit_that_is_no_number_differs_without_end() -> None:
    one, two = np.array([0.0, -np.inf]), np.array([0.5, -np.inf])
    assert look_ahead_probe.difference_of(one, two) == (0, 0.5)
    assert look_ahead_probe.difference_of(one, np.array([np.nan, 0.0]))[1] == np.inf
