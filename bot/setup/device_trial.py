"""`regatta doctor --train`: ten steps of training on each kind of device that Ray has."""

import json
import secrets
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import httpx

from bot.setup.findings import Finding, answering
from runner.lib.format import percent
from runner.schema.devices import Kind

PATIENCE = 600.0  # seconds for all kinds; others may hold the devices
LONGEST = 300  # characters of an error
OVER = ("SUCCEEDED", "FAILED", "STOPPED")


def tried(
    http: httpx.Client, at: str, token: str, kinds: Mapping[str, Kind], patience: float = PATIENCE
) -> dict[str, Finding]:
    """What ten steps on each kind found, on the Ray at the address `at`. Raises Wrong if Ray does
    not take the job."""
    job = f"doctor-{secrets.token_hex(4)}"
    asked = json.dumps({name: asdict(kind) for name, kind in kinds.items() if kind.on_ray})
    command = shlex.join(["exec", sys.executable, "-m", "runner.worker.ten_steps", asked])
    headers = {"Authorization": f"Bearer {token}"}
    body = {"entrypoint": command, "submission_id": job, "entrypoint_num_cpus": 0}
    with answering(f"Ray at {at} takes no job ({{}}).", "Follow the line `Ray`; then try again."):
        http.post(f"{at}/api/jobs/", json=body, headers=headers, timeout=30).raise_for_status()
        until = time.monotonic() + patience
        while (over := _status(http, f"{at}/api/jobs/{job}", headers)) not in OVER:
            if time.monotonic() > until:
                http.post(f"{at}/api/jobs/{job}/stop", headers=headers).raise_for_status()
                break
            time.sleep(1)
        log = http.get(f"{at}/api/jobs/{job}/logs", headers=headers).raise_for_status().json()
    lines = [line for line in str(log["logs"]).splitlines() if line.startswith('{"kind": ')]
    found = {f"ten steps on {x['kind']}": _finding(x) for x in map(json.loads, lines)}
    if over not in OVER:
        words = f"not all kinds were free within {patience:.0f} s."
        found["ten steps"] = Finding(False, words, "Try again when fewer experiments run.")
    elif over != "SUCCEEDED" or not found:
        words = f"the job ended as {over.lower()}, with {len(found)} kinds tried."
        mend = f"`ray job logs {job}` says why; devices.yml says what a kind asks Ray for."
        found["ten steps"] = Finding(False, words, mend)
    return found


def _status(http: httpx.Client, url: str, headers: Mapping[str, str]) -> str:
    return str(http.get(url, headers=headers).raise_for_status().json()["status"])


def _finding(said: Mapping[str, Any]) -> Finding:
    if error := said.get("error"):
        mend = "See the log of Ray's worker; `pip install 'regatta[cuda]'` or `regatta[tpu]` there."
        return Finding(False, f"the training failed: {str(error)[-LONGEST:]}", mend)
    first, last = said["losses"]
    return Finding(
        True,
        f"{said['tokens_per_second']:,.0f} tokens/s on {said['count']}, MFU {percent(said['mfu'])} "
        f"of the peak in devices.yml; loss {first:.2f} to {last:.2f}.",
    )
