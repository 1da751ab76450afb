"""Of `test_local_run.py` what needs a process, a socket or a compilation."""

from pathlib import Path

from runner.schema import job_reports
from tests.pretended import declare, pretend
from tests.stub_trainer import StubJob, put_report
from tests.unit.runner.test_cli import LocalStub, ask
from tests.unit.runner.test_cli import local as local  # a fixture


def test_a_run_of_steps_says_how_far_it_is_and_ends_with_its_figures(
    tmp_path: Path, local: LocalStub
) -> None:
    declare(tmp_path / "which")
    slow = ask("run", tmp_path / "which", "--store", tmp_path / "one")
    assert "running steps (t1)" in slow.stderr
    local.ray.make_steps = pretend()
    said = ask("run", tmp_path / "which", "--store", tmp_path / "other").stdout
    table = "evaluate: bits per byte on 64 validation tokens, lower is better train/deep 3.0500"
    assert table in " ".join(said.split())


def test_why_a_step_failed_is_said_as_it_fails_and_in_the_table(
    tmp_path: Path, local: LocalStub
) -> None:
    def failing(job: StubJob) -> None:
        pretend(broken="tokens")(job)
        why = "tokens: ValueError: no such word"
        put_report(
            job.out / "failed.json", job_reports.AttemptReport(nonce=job.spec.nonce, why=why)
        )

    local.ray.make_steps = failing
    answer = ask("run", declare(tmp_path / "which"), "--store", tmp_path / "store")
    assert answer.exit_code == 1
    assert answer.stderr.count("ValueError: no such word") == 1
    assert answer.stdout.count("ValueError: no such word") == 1
