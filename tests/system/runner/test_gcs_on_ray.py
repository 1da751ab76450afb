"""A graph through a real Ray whose store is in a bucket, as somebody runs it. Jobs have another
identity than we: for theirs there is no bucket but the jobs'."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runner.cli import main
from runner.store import gcs
from tests import fake_gcs
from tests.integration.runner.test_execute import OWN
from tests.integration.runner.test_on_gcs import GRAPH

PLACES = ("--store", "gs://records/lab", "--jobs", "gs://jobs/lab")


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, [*map(str, words), *PLACES])


@pytest.mark.slow
def test_a_graph_runs_through_ray_in_a_bucket_and_the_jobs_ask_for_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(GRAPH)
    (folder / "own.py").write_text(OWN)
    with fake_gcs.serving() as ours, fake_gcs.serving() as theirs:
        ours.buckets = {"records": {}, "jobs": {}}
        theirs.buckets = {"jobs": ours.buckets["jobs"]}
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", ours.url)
        monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "ours"))
        told = {"STORAGE_EMULATOR_HOST": theirs.url, "REGATTA_CACHE": str(tmp_path / "theirs")}
        monkeypatch.setattr(gcs, "for_jobs", lambda: told)

        before = ask("plan", folder)
        assert before.exit_code == 0, before.output
        assert "new" in before.stdout
        ran = ask("run", folder, "--json")
        assert ran.exit_code == 0, ran.output
        assert set(theirs.asked) == {"jobs"}
        assert {name.split("/")[1] for name in ours.buckets["records"]} == {"store.json", "records"}
        execution = json.loads(ran.stdout)["execution"]

        shown = ask("show", execution, "--json")
        steps = json.loads(shown.stdout)["steps"]
        assert {end["state"] for end in steps.values()} == {"made"}
        assert f"gs://jobs/lab/{steps['train']['folder']}" in ours_words(ask("show", execution))
        assert "cached" in ask("plan", folder).stdout
        stored = ours.buckets["jobs"]
        scores = json.loads(stored[f"lab/{steps['scores']['folder']}/scores.json"].data)
        assert set(scores) == {""}


def ours_words(answer: Result) -> str:
    """What was printed, as one line: a terminal folds long ones."""
    return "".join(answer.stdout.split())
