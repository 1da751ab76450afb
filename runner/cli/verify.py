"""`verify` and `key`: check whether the lab signed a file; manage the signing key."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.commands import App
from runner.cli.ending import FAILED, stop, stopping, tell
from runner.cli.options import AsJson, TheStore
from runner.publish import signing
from runner.store.store import Store, StoreError

app = App(help="The lab's signing key.", no_args_is_help=True)
OTHER_KEYS = "save api/keys.json of the lab's site, and name that file with --keys"


def command(
    file: Annotated[Path, typer.Argument(help="A file that a lab has signed.")],
    keys: Annotated[
        Path, typer.Option(help="The lab's public keys, as its site has them: api/keys.json")
    ] = Path("keys.json"),
    as_json: AsJson = False,
) -> None:
    """Check a signed seal, plan or receipt. Uses no network. Exits with 1 for a forged file.

    It checks digest and signature, and computes fingerprint, seal and verdicts again."""
    with stopping(signing.BadKey, words=f"{keys}: {{}}; {OTHER_KEYS}."):
        known = signing.read_published(_content(keys, OTHER_KEYS))
    signed = _content(file, "name a file that a lab has signed, as under signed/ of its site")
    with stopping(signing.Forged, code=FAILED, words=f"✗ {file}: {{}}."):
        found = signing.verify(signed, known)
    words = f"✓ {file}: {found.kind} {found.path}, signed by the lab"
    about = {"kind": found.kind, "path": found.path, "key": found.key, "sha256": found.sha256}
    tell(f"{words}\n  key {found.key}, sha256 {found.sha256}", as_json, file=file, **about)


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="The file to write it to.")],
    as_json: AsJson = False,
) -> None:
    """Make a signing key. Only its owner may read it; the bot is started with `--key`."""
    with stopping(signing.BadKey, words="{}."):
        key = signing.make_key(path)
    tell(f"{path}: a new key, {key.id}", as_json, file=path, key=key.id)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Its id.")],
    store: TheStore = "store",
    as_json: AsJson = False,
) -> None:
    """Revoke a stolen key: the lab does not publish it any more."""
    with stopping(StoreError):
        opened = Store(store, make=False)
    with stopping(signing.BadKey, words="{}."):
        signing.revoke(opened, key, datetime.now(UTC))
    words = f"{key} is revoked: `regatta verify` now rejects what it signed."
    tell(words, as_json, revoked=key)


def _content(path: Path, instead: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        stop(f"{path} cannot be read: {error.strerror}; {instead}.")
