"""GitHub's own examples of webhooks: real payloads, for whatever takes them.

`REGATTA_TEST_WEBHOOKS` may name a folder of them, as `<event>.<action>.<n>.json`. Elsewhere the npm
package that they come from is fetched once, and kept only if it is the one that is meant.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = "@octokit/webhooks-examples@7.6.1"
SHA512 = "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ=="
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "regatta-tests"
SECONDS = 60  # that fetching may take


class NotHere(Exception):
    """There are no payloads here, and why."""


@dataclass(frozen=True)
class Payload:
    """One example."""

    name: str
    event: str
    body: dict[str, Any]

    @property
    def action(self) -> str:
        """What happened; "" where the event has no actions."""
        return str(self.body.get("action", ""))


def payloads() -> list[Payload]:
    """All examples. Raises `NotHere` where there is no folder, and no package can be had."""
    if named := os.environ.get("REGATTA_TEST_WEBHOOKS"):
        files = sorted(Path(named).glob("*.json"))
        if not files:
            raise NotHere(f"REGATTA_TEST_WEBHOOKS names {named}, and there are no payloads there")
        return [
            Payload(file.stem, file.name.partition(".")[0], json.loads(file.read_bytes()))
            for file in files
        ]
    with tarfile.open(_package()) as packed:
        index = packed.extractfile("package/api.github.com/index.json")
        if index is None:
            raise NotHere(f"{PACKAGE} has no index of its examples")
        events = json.loads(index.read())
    return [
        Payload(f"{event['name']}.{n}", event["name"], example)
        for event in events
        for n, example in enumerate(event["examples"])
    ]


def _package() -> Path:
    """The package's archive, which is fetched if it is not here yet."""
    kept = CACHE / f"{PACKAGE.replace('/', '-').lstrip('@')}.tgz"
    if kept.exists() and _is_meant(kept):
        return kept
    npm = shutil.which("npm")
    if npm is None:
        raise NotHere("REGATTA_TEST_WEBHOOKS names no folder of payloads, and there is no npm")
    draft = CACHE / f"draft-{os.getpid()}"
    draft.mkdir(parents=True, exist_ok=True)
    try:
        command = [npm, "pack", "--silent", "--ignore-scripts", PACKAGE]
        subprocess.run(command, cwd=draft, check=True, capture_output=True, timeout=SECONDS)
        (fetched,) = draft.glob("*.tgz")
        if not _is_meant(fetched):
            raise NotHere(f"what npm has as {PACKAGE} is not the package that is pinned here")
        fetched.replace(kept)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise NotHere(f"{PACKAGE} could not be fetched: {type(error).__name__}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return kept


def _is_meant(archive: Path) -> bool:
    return hashlib.sha512(archive.read_bytes()).digest() == base64.b64decode(SHA512)
