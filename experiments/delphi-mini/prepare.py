"""The Python sources of packages that the lab pins by hash, as documents: a text that anybody can
make again bit for bit with `pip install --require-hashes -r requirements.lock`. Files are taken in
the order of their paths, as they came in the wheel (each is checked against the wheel's own digest);
what is there twice is taken once, so that nothing that is scored was trained on."""

import base64
import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

HELD_OUT = 32  # one file in so many is for validation, by the digest of its path


def documents(config: dict[str, Any], inputs: dict[str, Path], out: Path) -> None:
    """Writes `train.jsonl` and `validation.jsonl`, one {"text": …} a line. `packages` are names and
    versions, `leave_out` folders of copies of other packages, `sha256` the digest of all of it."""
    assert not inputs
    seen: set[bytes] = set()
    whole = hashlib.sha256()
    with (out / "train.jsonl").open("w") as train, (out / "validation.jsonl").open("w") as held_out:
        for package, version in sorted(config["packages"].items()):
            for path, content in sources(package, version, set(config["leave_out"])):
                digest = hashlib.sha256(content).digest()
                if digest in seen or not content:
                    continue
                seen.add(digest)
                whole.update(path.encode() + b"\0" + digest)
                first = hashlib.sha256(path.encode()).digest()[0]
                file = held_out if first < 256 // HELD_OUT else train
                file.write(json.dumps({"text": content.decode()}) + "\n")
    if whole.hexdigest() != config["sha256"]:
        raise ValueError(
            f"the sources of the pinned packages have the digest {whole.hexdigest()} here and not "
            f"{config['sha256']}; install them from requirements.lock"
        )


def sources(package: str, version: str, leave_out: set[str]) -> Iterator[tuple[str, bytes]]:
    """Path and content of a package's `.py` files, sorted by path. Raises ValueError for another
    version, and for a file that is not as the package brought it."""
    found = distribution(package)
    if found.version != version:
        raise ValueError(f"{package} is {found.version} here and not {version}")
    for file in sorted(found.files or (), key=str):
        path = file.as_posix()
        if not path.endswith(".py") or file.hash is None or leave_out & set(file.parts):
            continue
        content = Path(str(found.locate_file(file))).read_bytes()
        if _of_record(content) != file.hash.value:
            raise ValueError(f"{path} is not as {package} {version} brought it")
        yield path, content


def _of_record(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
