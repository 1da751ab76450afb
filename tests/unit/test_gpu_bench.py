"""The order of what is measured on a GPU, and how a call goes on where the last one stopped."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import gpu

CARD = "NVIDIA H100 80GB HBM3, 580.1, 700 W"
FOUND = {
    **{"flops": 4e8, "causal_flops": 3e8, "peak_bytes": 2**34},
    "tokens_per_second": 1_000_000.0,
}


def call(
    monkeypatch: pytest.MonkeyPatch, out: Path, seconds: float = 600, missing: str = ""
) -> list[str]:
    """The names of the jobs that a call does, of which each takes what it may."""
    done, now = list[str](), [0.0]

    def do(job: gpu.Job, _: float, __: Path) -> dict[str, Any]:
        done.append(job.name)
        now[0] += job.seconds
        slower = 0.5 if "flash" in job.name else 1.0
        return FOUND | {"tokens_per_second": slower * FOUND["tokens_per_second"]}

    monkeypatch.setattr(gpu, "do", do)
    monkeypatch.setattr(gpu, "BUILD", out.parent / "build")
    monkeypatch.setattr(gpu, "nvidia", lambda _: CARD)
    monkeypatch.setattr(gpu, "missing", lambda needs: [one for one in needs if one == missing])
    monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
    argv = ["gpu", "--out", str(out), "--seconds", str(seconds), "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", argv)
    gpu.main()
    return done


def test_calls_go_on_where_the_last_one_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, told = tmp_path / "gpu.json", []
    while found := call(monkeypatch, out):
        told += found
    assert told[:3] == ["tests", "130m, 1024, engine, 1", "130m, 1024, flash, 1"]
    assert len(told) == len(set(told))
    assert set(told) == {job.name for job in gpu.jobs(smoke=False, rounds=1)}
    assert "jobs are left for the next call" in capsys.readouterr().out
    assert (
        "At 130m and 1024 tokens: 1.00 times `torch.compile`." in (tmp_path / "gpu.md").read_text()
    )
    assert (
        "| 130m | 1024 | engine | 1,000,000 | 40.4% (30.3%) | 45% | 16.0 |"
        in (tmp_path / "gpu.md").read_text()
    )


def test_after_a_change_of_the_engine_all_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = call(monkeypatch, tmp_path / "gpu.json")
    monkeypatch.setattr(gpu, "code", lambda: "another")
    assert call(monkeypatch, tmp_path / "gpu.json") == first


def test_what_is_missing_is_left_out_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(monkeypatch, tmp_path / "gpu.json", 100_000, missing="torch")
    assert not [name for name in done if "flash" in name or "transformers" in name]
    assert "130m, 1024, flash, 1: not measured, torch is not here" in capsys.readouterr().out


def test_figures_of_two_machines_are_not_mixed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "gpu.json"
    out.write_text(json.dumps({"machine": {"gpu": "NVIDIA A100, 1, 2"}, "jobs": {}}))
    with pytest.raises(SystemExit, match="is of NVIDIA A100, 1, 2, and this is NVIDIA H100"):
        call(monkeypatch, out)
