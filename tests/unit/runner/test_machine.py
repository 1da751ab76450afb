"""The receipt of an attempt: what equality of its figures rests on."""

from pathlib import Path

import pytest

from runner.schema.job_reports import AttemptReport
from runner.worker import environment as worker_environment


def test_other_code_is_another_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, names in (
        ("engine/model", ("decoder.py",)),
        ("runner/worker", ("environment.py", "main.py")),
    ):
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / folder / name).write_text("code")
    monkeypatch.setattr(
        worker_environment, "__file__", str(tmp_path / "runner/worker/environment.py")
    )
    before = worker_environment.receipt()["code_sha256"]
    assert worker_environment.receipt()["code_sha256"] == before
    (tmp_path / "engine/model/decoder.py").write_text("other code")
    assert worker_environment.receipt()["code_sha256"] != before


def test_endless_flags_are_cut_and_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false " * 100)
    receipt = worker_environment.receipt()
    assert len(receipt["xla_flags"]) == worker_environment.MOST_WORDS
    AttemptReport(nonce="aa", receipt=receipt)
