"""With a key, the site holds signed files that `regatta verify` accepts."""

from pathlib import Path

from bot.site.pages.build import build
from runner.publish import signing
from runner.store.store import Store
from tests import synthetic
from tests.unit.runner.test_signing import NOW, receipt
from tests.unit.site.test_pages import Page


def test_seals_plans_and_receipts_are_signed_and_linked(tmp_path: Path) -> None:
    store, key = Store(tmp_path / "store"), signing.make_key(tmp_path / "lab.pem")
    found = receipt(store)
    plan = synthetic.record.PlanRecord(
        repository=7, pull=2, n=1, commit="a" * 40, at=NOW, plan=found.execution.plan
    )
    synthetic.record.write(store, "plans/7/2/1", plan)
    build(store, tmp_path / "site", key=key)
    keys = signing.read_published((tmp_path / "site" / "api" / "keys.json").read_bytes())
    files = sorted((tmp_path / "site" / "api" / "signed").rglob("*.json"))
    kinds = [signing.verify(file.read_bytes(), keys).kind for file in files]
    assert sorted(kinds) == ["plan", "receipt", "seal"]
    page = Page(tmp_path / "site" / "executions" / found.execution.id / "index.html")
    assert f"../../api/signed/executions/{found.execution.id}/result.json" in page.links


def test_without_a_key_nothing_is_signed_and_nothing_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    found = receipt(store)
    build(store, tmp_path / "site")
    assert not (tmp_path / "site" / "api" / "signed").exists()
    page = Page(tmp_path / "site" / "executions" / found.execution.id / "index.html")
    assert "regatta verify" not in page.text


def test_a_revoked_key_signs_nothing_and_is_not_published_again(tmp_path: Path) -> None:
    store, key = Store(tmp_path / "store"), signing.make_key(tmp_path / "lab.pem")
    receipt(store)
    signing.keep(store, key, NOW)
    build(store, tmp_path / "site", key=key)
    assert key.id in (tmp_path / "site" / "api" / "keys.json").read_text()
    signing.revoke(store, key.id, NOW)
    build(store, tmp_path / "site", key=key)
    assert not (tmp_path / "site" / "api" / "keys.json").exists()
    assert not (tmp_path / "site" / "api" / "signed").exists()
