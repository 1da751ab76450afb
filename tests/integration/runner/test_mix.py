"""Of `test_mix.py` what needs a process, a socket or a compilation."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from runner.worker.metrics_chunks import MetricsChunks
from runner.worker.models.params_file import PARAMS
from runner.worker.scores.evaluate import evaluate
from tests.unit.runner.test_mix import PHASES, made
from tests.unit.runner.test_mix import stores as stores  # a fixture


class Killed(BaseException):
    pass


@pytest.mark.parametrize("stop", [4, 7, 9])
def test_a_maker_killed_around_a_phase_leaves_no_trace_in_the_model(
    stores: dict[str, Path],
    undisturbed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: int,
) -> None:
    def add(chunks: MetricsChunks, figures: dict[str, Any]) -> None:
        noted(chunks, figures)
        if figures["step"] == stop:
            raise Killed

    noted = MetricsChunks.add
    monkeypatch.setattr(MetricsChunks, "add", add)
    with pytest.raises(Killed):
        made(stores, tmp_path / "1-dead")
    monkeypatch.undo()
    assert made(stores, tmp_path / "2-heir") == undisturbed
    steps = [json.loads(x)["step"] for x in (tmp_path / "2-heir/curve.jsonl").open()]
    assert steps == list(range(1, 13))


@pytest.fixture(scope="module")
def undisturbed(stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(stores, tmp_path_factory.mktemp("undisturbed") / "1-maker")


def test_a_phase_that_repeats_what_holds_makes_the_same_model(
    stores: dict[str, Path], undisturbed: str, tmp_path: Path
) -> None:
    repeated = [PHASES[0], {"at": 6, "weights": {"code": 3, "web": 1}}, PHASES[1]]
    assert made(stores, tmp_path / "repeated/1", repeated) == undisturbed
    assert made(stores, tmp_path / "without/1", PHASES[:1]) != undisturbed


# ── Scoring ──────────────────────────────────────────────────────────────────────────────────


def scored(out: Path, model: Path, tokens: Path, targets: int) -> dict[str, Any]:
    out.mkdir()
    evaluate({"tokens": targets}, {"models": model, "tokens": tokens}, out)
    return {path.stem: json.loads(path.read_text())[""] for path in out.iterdir()}


def test_a_mixture_is_scored_by_its_parts_and_all_bits_are_over_all_bytes(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    made(stores, tmp_path / "model", PHASES[:1])
    both = scored(tmp_path / "both", tmp_path / "model", stores["mixed"], 128)
    alone = {
        name: scored(tmp_path / name, tmp_path / "model", stores[name], 64)["scores"]
        for name in ("web", "code")
    }
    digest = {"params_sha256": both["scores"].pop("params_sha256")}
    assert {name: part | digest for name, part in both["parts"].items()} == alone
    bits = sum(part["loss"] * part["targets"] for part in alone.values()) / math.log(2)
    assert both["scores"]["targets"] == 128
    assert both["scores"]["bpb"] == pytest.approx(bits / 128), "a token is a byte"
    assert not (tmp_path / "web/parts.json").exists()

    measured = both["measured"]
    norm = measured.pop("weights/output_norm")
    assert {metric: one["value"] for metric, one in measured.items()} == {
        "eval/bpb": both["scores"]["bpb"],
        "eval/web/bpb": alone["web"]["bpb"],
        "eval/code/bpb": alone["code"]["bpb"],
    }
    assert all(one["standard_error"] > 0 and one["items"] > 1 for one in measured.values())
    arrays = load_file(tmp_path / "model" / PARAMS)
    matrix = arrays.get("lm_head", arrays.get("embedding"))
    assert norm["value"] == pytest.approx(float((matrix.astype(float) ** 2).sum() ** 0.5))
    assert norm["items"] is None
