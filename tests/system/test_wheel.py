"""What pip installs is all of it: the wheel is unpacked far from this checkout, and used from an
empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.schema import lab_config
from tests.documented import copied

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
SMALL = """\
title: Does it run from a wheel?
data: {source: lab-2026-11}
model: {depth: 1, seq_len: 32}
train: {train_batch_size: 4, num_train_steps: 2, learning_rate: 0.01}
eval: {tokens: TOKENS}
resources: {kind: cpu}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel's files are in."""
    place = tmp_path_factory.mktemp("wheel")
    sources = copied(place / "sources")
    only_it = ("--no-deps", "--no-build-isolation")
    subprocess.run([*PIP, "wheel", *only_it, "--wheel-dir", place, sources], check=True)
    (wheel,) = place.glob("*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--target", place / "there", wheel], check=True)
    return place / "there"


@pytest.mark.long
def test_the_wheel_does_all_that_a_checkout_does(installed: Path, tmp_path: Path) -> None:
    def regatta(*words: str | Path) -> str:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "bot", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, f"{words}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
        return ended.stdout

    assert (
        str(installed)
        in subprocess.run(
            [sys.executable, "-P", "-c", "import engine; print(engine.__file__)"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
        ).stdout
    )  # and not this checkout
    for starter in ("plain", "hackable", "datashop"):
        regatta("new", starter, "--from", starter)
        regatta("plan", f"experiments/{starter}")
    small = tmp_path / "experiments/small/experiment.yaml"
    small.parent.mkdir()
    tracks = reversed(lab_config.defaults().tracks.items())  # the first are on the lab's corpus
    one_of_each_kind = {one.kind: (name, one) for name, one in tracks}
    for name, track in one_of_each_kind.values():
        entered = f"speedrun: {{track: {name}, author: {{name: ada}}}}\n"
        arms = "arms: {a: {}, b: {}, c: {}, d: {}}\n" if track.kind == "scaling" else ""
        tokens = str(track.data.eval_tokens)
        small.write_text(SMALL.replace("TOKENS", tokens) + entered + arms)
        regatta("plan", "experiments/small")
    small.write_text(SMALL.replace("TOKENS", "256"))
    regatta("run", "experiments/small")
    assert "small" in regatta("show")
    regatta("site", "build", "--out", "site")
    assert "Does it run from a wheel?" in (tmp_path / "site/index.html").read_text()
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    regatta("init", "--yes")
    assert (tmp_path / ".github/regatta/policy.yml").exists()
