"""Bad input of every kind, in `every_mistake.yaml`: declarations, forms, policies, clusters and
command lines with ALL complaints that each is answered with. Mistakes of several stages are told
together, each once, with its line, its field and what to write instead; and nothing is told that
only follows from another mistake."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bot.cli.main import app
from bot.model import policy_file
from bot.model.thread import Issue, Thread, ThreadId
from bot.rules import sealing
from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.scheduler import cluster
from runner.schema import lab_config
from runner.schema.record import Person, Prediction, Preregistration
from runner.spec import declaration
from tests.decided import KINDS
from tests.scenarios.lab import EXPERIMENT, TEXT, form_body

MISTAKES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "every_mistake.yaml").read_text(encoding="utf-8")
)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADA = Person(login="ada", id=11)
SEALED = Preregistration(
    repository=7,
    issue=1,
    title="Warm",
    hypothesis="Because.",
    predictions=(
        Prediction(metric="eval/bpb", arm="fast", versus="slow", expect="< 0", confidence=0.8),
    ),
    author=ADA,
    at=NOW,
    text_sha256="0" * 64,
)
STEPS = """\
title: Does a filter pay off?
resources: {kind: cpu}
steps:
  text: {do: tokenize, config: {source: text.txt}}
  train:
    do: train
    inputs: {tokens: text}
    config:
      model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, seq_len: 32}
      train: {train_batch_size: 4, num_train_steps: 16, learning_rate: 0.003}
  score: {do: evaluate, inputs: {models: train, tokens: text}, config: {tokens: 64}}
"""
MODULE = "def Net(config): ...\ndef loss(config, logits, targets): ..."


def each(kind: str) -> Any:
    """One test for each bad input of this kind."""
    found = MISTAKES[kind]
    return pytest.mark.parametrize("one", found.values(), ids=found)


def edited(text: str, edits: Mapping[str, str]) -> str:
    for was, now in edits.items():
        assert text.count(was) == 1, was
        text = text.replace(was, now)
    return text


def told(text: str, folder: Path, sealed: Preregistration | None = None) -> list[str]:
    """All that is said of an experiment.yaml in a folder with a text and a module."""
    (folder / "text.txt").write_text(TEXT)
    (folder / "model.py").write_text(MODULE)
    document, lab = declaration.read(text, "x"), lab_config.defaults()
    try:
        graph = declaration.drafted(document, lab)
        planner.make_plan(graph, folder, called="FOLDER", sealed=sealed)
    except BadExperiment as error:
        return [str(one).removeprefix("x, ") for one in error.problems]
    return []


def test_what_is_edited_is_well_formed_before(tmp_path: Path) -> None:
    assert told(EXPERIMENT, tmp_path, SEALED) == []
    assert told(STEPS, tmp_path) == []


@each("declarations")
def test_all_that_is_wrong_with_a_declaration_is_told_at_once(
    one: dict[str, Any], tmp_path: Path
) -> None:
    assert told(edited(EXPERIMENT, one["edits"]), tmp_path, SEALED) == one["told"]


@each("declarations of steps")
def test_all_that_is_wrong_with_steps_is_told_at_once(one: dict[str, Any], tmp_path: Path) -> None:
    assert told(edited(STEPS, one["edits"]), tmp_path) == one["told"]


@each("forms")
def test_all_that_is_wrong_with_a_form_is_told_at_once(one: dict[str, Any]) -> None:
    thread = Thread(ThreadId(7, 1), "lab/lab", "https://github.com/lab/lab", NOW, is_pull=False)
    issue = Issue("Warm", form_body(one["hypothesis"], one["predictions"]), ADA, open=True)
    labels = {key: key.capitalize() for key in ("hypothesis", "predictions", "notes")}
    with pytest.raises(sealing.NotReadable) as caught:
        sealing.read(issue, labels, thread)
    assert list(caught.value.problems) == one["told"]


@each("policies")
def test_all_that_is_wrong_with_a_policy_is_told_at_once(one: dict[str, Any]) -> None:
    files = {policy_file.PATH: one["text"].encode()}
    assert list(policy_file.parse(files, "f" * 40, KINDS).problems) == one["told"]


@each("clusters")
def test_all_that_is_wrong_with_a_cluster_is_told_at_once(one: dict[str, Any]) -> None:
    with pytest.raises(BadExperiment) as caught:
        cluster.parse(one["text"], "x")
    assert list(map(str, caught.value.problems)) == one["told"]


@pytest.mark.parametrize(("line", "said"), MISTAKES["command lines"].items())
def test_all_that_is_wrong_with_a_command_line_is_told_at_once(
    line: str, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "experiments" / "tiny"
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(EXPERIMENT.replace("preregistration: 1\n", ""))
    (folder / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(line)
    answer = CliRunner().invoke(app, words, prog_name=program)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.splitlines() == said
    assert not (tmp_path / "store").exists(), "nothing was started"
