"""Speaks to the Hugging Face Hub, with Hugging Face's own client. HF_TOKEN, HF_ENDPOINT and the
other variables of that client count."""

import fnmatch
import os
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from runner.publish import uploads
from runner.schema import record
from runner.store import artifacts
from runner.store.store import Store

# What a model is read from. No pickles, no code.
FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("chat_template.jinja", "*.safetensors", "model.safetensors.index.json"),
)


TOKEN = "HF_TOKEN"


class HubError(Exception):
    """The Hub did not give or take a model; the message says why and what to do."""


class Fetched(NamedTuple):
    """A model that was downloaded."""

    name: str
    commit: str  # its full id at the Hub


def fetch(name: str, revision: str | None, into: Path) -> Fetched:
    """Download the files of a model to an existing folder. `revision` is a branch, a tag or a
    commit. Raises HubError."""
    from huggingface_hub import HfApi  # slow to import

    api = HfApi()
    try:
        commit = api.model_info(name, revision=revision).sha or ""
        api.snapshot_download(
            name, revision=commit or revision, local_dir=into, allow_patterns=list(FILES)
        )
    except Exception as error:  # those of the client's own client are of no common kind
        at = f"@{revision}" if revision else ""
        raise HubError(
            f"{name}{at} could not be fetched from {api.endpoint}: {first_line(error)}; check the "
            "name and the network (HF_TOKEN is for models that need a login), or download it "
            "elsewhere and name its folder"
        ) from error
    shutil.rmtree(into / ".cache", ignore_errors=True)  # the client's notes
    return Fetched(name, commit)


def copy(folder: Path, into: Path) -> None:
    """Copy the files of a model from a folder of this machine. Raises OSError, and HubError for a
    link to something else of this machine."""
    # A clone of the Hub's own client links to `blobs`, beside `snapshots`.
    around = {folder.resolve(), folder.resolve().parent.parent / "blobs"}
    for path in sorted(folder.iterdir()):
        if path.is_file() and any(fnmatch.fnmatch(path.name, one) for one in FILES):
            if path.resolve().parent not in around:
                raise HubError(f"{path} is a link to {path.resolve()}; put the file itself there")
            shutil.copyfile(path, into / path.name)


def wanted() -> bool:
    """Whether the lab has a token for the Hub."""
    return bool(os.environ.get(TOKEN))


def upload(store: Store, execution: str) -> tuple[list[str], list[str]]:
    """Upload the exported models of a finished execution whose plan asked for it and that are not
    there yet. A new repository is private; its owner may publish it. Returns the repositories that
    have them, now or before, and errors as sentences."""
    plan = record.require(store, f"executions/{execution}/execution", record.Execution).plan
    there, troubles = list[str](), list[str]()
    for name, step in plan.steps.items():
        repository = step.config.get("upload") if step.do == "export" else None
        if repository is None:
            continue
        path = f"hub/{execution}.{step.fingerprint[:16]}"
        if record.read(store, path, record.Upload) is None:
            try:
                made = artifacts.find(store, step.store, step.fingerprint)
                if made is None:
                    continue  # it failed
                commit = _upload(repository, made.folder, f"{plan.title} ({execution})")
            except (artifacts.BadOutput, HubError) as error:
                troubles.append(f"{name} did not reach {repository}: {error}")
                continue
            record.write(store, path, record.Upload(at=datetime.now(UTC), id=commit))
        there.append(repository)
    return there, troubles


def _upload(repository: str, folder: Path, title: str) -> str:
    """Upload a folder as one commit. Returns the commit's id. Raises HubError."""
    from huggingface_hub import HfApi

    api = HfApi(token=os.environ[TOKEN])
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=title[:200]
        )
    except Exception as error:  # as above
        words = first_line(error).replace(os.environ[TOKEN], "…")
        raise HubError(f"{api.endpoint} answered: {words}") from error
    return str(commit.oid)


def keep_uploading(store: Store, stop: threading.Event) -> None:
    """Upload what is due, until `stop` is set."""
    uploads.keep(wanted, upload, store, stop)


def first_line(error: Exception) -> str:
    """The first line of an error, or its name."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)[:300]
