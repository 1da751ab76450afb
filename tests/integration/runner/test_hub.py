"""Models from and to the Hugging Face Hub, with Hugging Face's client and a server on loopback."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.publish import hub, uploads
from runner.schema import record
from runner.store import artifacts
from runner.store.store import Store
from tests import synthetic
from tests.fake_hub import COMMIT, Hub
from tests.fake_hub import hub as served

TOKEN = "hf_" + "t" * 34
FILES = {"config.json": b"{}", "model.safetensors": b"\0" * 99}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with served() as state:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", state.url)
        template = f"{state.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield state


# ── In ───────────────────────────────────────────────────────────────────────────────────────


def test_a_model_comes_with_its_commit_and_without_pickles_or_code(
    there: Hub, tmp_path: Path
) -> None:
    there.files = {**FILES, "pytorch_model.bin": b"pickle", "modeling.py": b"import os"}
    (tmp_path / "into").mkdir()
    found = hub.fetch("org/name", "v1", tmp_path / "into")
    assert found == ("org/name", COMMIT)
    assert {x.name: x.read_bytes() for x in (tmp_path / "into").iterdir()} == FILES
    assert ("GET", "/api/models/org/name/revision/v1", "") in there.asked


def test_a_folder_is_copied_without_following_links_to_other_places(tmp_path: Path) -> None:
    folder, into = tmp_path / "models/snapshots/abc", tmp_path / "into"
    blobs = tmp_path / "models/blobs"
    for made in (folder, blobs, into):
        made.mkdir(parents=True)
    (blobs / "123").write_text("{}")
    (folder / "config.json").symlink_to("../../blobs/123")  # as the Hub's own client does
    (folder / "notes.md").write_text("left out")
    hub.copy(folder, into)
    assert {x.name: x.read_text() for x in into.iterdir()} == {"config.json": "{}"}
    (tmp_path / "secret.json").write_text("a key")
    (folder / "generation_config.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(hub.HubError, match=r"generation_config\.json is a link to .*secret\.json"):
        hub.copy(folder, into)


def test_a_model_that_is_not_there_is_named_with_the_place(there: Hub, tmp_path: Path) -> None:
    there.refuses = True
    with pytest.raises(hub.HubError, match=f"org/name@v1 could not be fetched from {there.url}: "):
        hub.fetch("org/name", "v1", tmp_path)


# ── Out ──────────────────────────────────────────────────────────────────────────────────────


def executed(store: Store, repository: str | None = "lab/model") -> record.Execution:
    """A finished execution with an `export` step that asked for this repository."""
    plan = synthetic.plan()
    step = plan.steps["evaluate"].model_copy(
        update={
            "do": "export",
            "store": "export",
            "fingerprint": synthetic.sha("export"),
            "config": {"upload": repository},
        }
    )
    execution = synthetic.execution(plan.model_copy(update={"steps": {**plan.steps, "home": step}}))

    def write(out: Path) -> None:
        for name, content in FILES.items():
            (out / name).write_bytes(content)

    artifacts.make(store, step.store, step.fingerprint, write, {}, by=execution.id)
    synthetic.finish(store, execution, synthetic.PLAIN)
    return execution


def test_an_exported_model_is_uploaded_once_to_a_private_repository(
    there: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    store = Store(tmp_path / "store")
    execution = executed(store)
    assert hub.upload(store, execution.id) == (["lab/model"], [])
    assert there.sent == FILES
    [asked] = there.created
    assert (asked["name"], asked["organization"]) == ("model", "lab")
    assert "private" in (asked.get("visibility"), asked.get("private") and "private")
    assert all(token == f"Bearer {TOKEN}" for _, _, token in there.asked)
    count = len(there.asked)
    assert hub.upload(store, execution.id) == (["lab/model"], [])
    assert len(there.asked) == count


def test_what_no_plan_asked_for_stays_here(
    there: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    store = Store(tmp_path / "store")
    assert hub.upload(store, executed(store, None).id) == ([], [])
    assert there.asked == []


def test_a_refusal_is_told_without_the_token_and_tried_again(
    there: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(uploads, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(uploads, "RETRY_AFTER", 0.2)
    store, there.refuses = Store(tmp_path / "store"), True
    execution = executed(store)
    [there_now, [trouble]] = hub.upload(store, execution.id)
    assert there_now == []
    assert trouble.startswith(f"home did not reach lab/model: {there.url} answered: ")
    assert TOKEN not in trouble
    stop = threading.Event()
    thread = threading.Thread(target=hub.keep_uploading, args=(store, stop))
    thread.start()
    there.refuses = False
    for _ in range(500):
        if record.names(store, "hub") or stop.wait(0.02):
            break
    stop.set()
    thread.join()
    assert len(record.names(store, "hub")) == 1


def test_without_a_token_nothing_is_uploaded(there: Hub, tmp_path: Path) -> None:
    assert not hub.wanted()
    hub.keep_uploading(Store(tmp_path / "store"), threading.Event())
    assert there.asked == []
