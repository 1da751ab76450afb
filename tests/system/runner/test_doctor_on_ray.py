"""`regatta doctor --train` on a real Ray, with two kinds of device that are both cores here."""

from dataclasses import replace
from pathlib import Path

import httpx

from bot.setup import device_trial
from runner.execution.local_ray import local_ray
from tests.decided import KINDS


def test_ten_steps_are_trained_on_each_kind_that_ray_has(tmp_path: Path) -> None:
    single = replace(KINDS["cpu"], description="CPU, 1 core", ray_cpus=1, peak_flops=9.6e10)
    gone = replace(KINDS["cpu"], ray_gpus=1)  # no devices in Ray
    kinds = {"cpu": KINDS["cpu"], "single": single, "gone": gone, "v5e": KINDS["v5e"]}
    with local_ray(tmp_path / "ray") as ray, httpx.Client(trust_env=False) as http:
        token = ray.token_file.read_text().strip()
        found = device_trial.tried(http, ray.url, token, kinds, patience=300)
    assert set(found) == {"ten steps on cpu", "ten steps on single"}
    for finding in found.values():
        assert finding.ok, finding
        assert "tokens/s on 1, MFU " in finding.words
        first, last = map(float, finding.words.rstrip(".").rpartition("loss ")[2].split(" to "))
        assert last < first
