"""The step that keeps the documents with the highest scores: exact counts, the same for any number
of workers, and scores that must be of the text."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.documents import whole_documents
from engine.data.lab_texts import BadText
from runner.lib import bounds
from runner.lib.problems import BadExperiment
from runner.schema.data_report import REPORT, DataReport
from runner.schema.devices import Kind
from runner.spec import declaration
from runner.spec.selection_steps import Select
from runner.store import digests
from runner.store.scratch_paths import RECEIPT
from runner.worker import shard_jobs, step_process
from runner.worker.selection.select import Documents, kept, select, why_not
from runner.worker.step_process import Job
from runner.worker.texts import shards
from runner.worker.texts.attributes import BadAttributes, write_attributes
from tests.decided import KINDS

SHARDS = {"train.00000": 40, "train.00001": 0, "train.00002": 57, "validation": 9}


def configured(**keys: Any) -> dict[str, Any]:
    return Select(**keys).model_dump(mode="json")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """97 documents to train on; every third has no id."""
    folder = tmp_path / "text"
    folder.mkdir()
    for name, count in SHARDS.items():
        with (folder / f"{name}.jsonl").open("w") as file:
            for n in range(count):
                known = {} if n % 3 == 0 else {"id": f"{name} {n}"}
                line = {
                    **known,
                    "n": f"{name} {n}",
                    "source": "ab"[n % 2],
                    "text": "né" * (n % 7 + 1),
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return folder


@pytest.fixture
def scores(text: Path) -> Path:
    """Scores with many ties."""
    folder = text.parent / "scores"
    folder.mkdir()
    for name, count in SHARDS.items():
        ids = [f"{name} {n}" if n % 3 else f"{name}:{n + 1}" for n in range(count)]
        rows = [(one, {"score": n * 7 % 10, "kind": "x"}) for n, one in enumerate(ids)]
        write_attributes(folder, name, rows)
    return folder


def selected(text: Path, scores: Path | None = None, **keys: Any) -> list[str]:
    """The train split that is left, as lines."""
    out = text.parent / f"out {len(list(text.parent.iterdir()))}"
    out.mkdir()
    inputs = {"text": text} | ({"scores": scores} if scores else {})
    select(configured(**keys), inputs, out)
    return lines(out)


def lines(folder: Path) -> list[str]:
    paths = sorted(folder.glob("train*.jsonl"))
    return [line for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 10), (0.5, 49), (0.005, 0), (1.0, 97)])
def test_a_fraction_is_exact_by_count(
    text: Path, scores: Path, fraction: float, count: int
) -> None:
    for chance in (False, True):
        given = None if chance else scores
        if not count:
            with pytest.raises(BadText, match="nothing of the train split is kept, of 97 doc"):
                selected(text, given, fraction=fraction, random=chance)
        else:
            assert len(selected(text, given, fraction=fraction, random=chance)) == count


def test_the_highest_scores_stay_in_the_order_of_the_text(text: Path, scores: Path) -> None:
    found = selected(text, scores, fraction=0.2)
    assert found == [line for line in lines(text) if line in found]
    every = [json.loads(x)["attributes"]["score"] for x in lines(scores)]
    mine = [score for score, line in zip(every, lines(text), strict=True) if line in found]
    assert sorted(mine) == sorted(every)[-19:]


def test_equal_scores_are_chosen_by_identity_not_by_place(text: Path, scores: Path) -> None:
    one, same, other = (selected(text, scores, fraction=0.05, seed=n) for n in (0, 0, 1))
    assert one == same != other
    assert {len(found) for found in (one, other)} == {5}


def test_bounds_keep_what_is_within_them(text: Path, scores: Path) -> None:
    found = selected(text, scores, least=3, most=7)
    by_score = zip(lines(scores), lines(text), strict=True)
    wanted = [y for x, y in by_score if 3 <= json.loads(x)["attributes"]["score"] <= 7]
    assert found == wanted
    by_chance = selected(text, scores, least=3, most=7, random=True)
    assert len(by_chance) == len(found)
    assert by_chance != found, "the random arm has as many"


def test_a_fraction_of_bytes_keeps_no_more_than_it(text: Path, scores: Path) -> None:
    def size(found: list[str]) -> int:
        return sum(len(json.loads(line)["text"].encode()) for line in found)

    for keys in ({}, {"random": True}):
        found = selected(text, None if keys else scores, fraction=0.3, by="bytes", **keys)
        room = 0.3 * size(lines(text))
        assert room - 14 < size(found) <= room, "the next document would have been too much"


def test_the_validation_split_is_unchanged_unless_asked(text: Path, scores: Path) -> None:
    for validation, count in (("whole", 9), ("selected", 3)):
        out = text.parent / validation
        out.mkdir()
        config = configured(fraction=0.3, validation=validation)
        select(config, {"text": text, "scores": scores}, out)
        assert len(list(whole_documents(out / "validation.jsonl"))) == count


def test_the_report_counts_by_source(text: Path, scores: Path) -> None:
    out = text.parent / "out"
    out.mkdir()
    select(configured(fraction=0.1), {"text": text, "scores": scores}, out)
    report = bounds.parse(DataReport, (out / REPORT).read_bytes())
    whole = lines(out) + (out / "validation.jsonl").read_text().splitlines()
    left = Counter(json.loads(line)["source"] for line in whole)
    assert {source: of.kept_documents for source, of in report.sources.items()} == left
    assert report.total.documents == 97 + 9
    assert report.left_out == {"`score` is not among the highest 10 %": 87}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"least": 3}, "`score` is not 3 or more"),
        ({"most": 2.5}, "`score` is not 2.5 or less"),
        ({"least": 1, "most": 3}, "`score` is not 1 to 3"),
        ({"fraction": 0.125}, "`score` is not among the highest 12.5 %"),
        ({"fraction": 0.1, "random": True}, "not drawn"),
    ],
)
def test_the_report_says_why_a_document_is_left_out(keys: dict[str, Any], words: str) -> None:
    assert why_not(configured(**keys)) == words


@pytest.mark.parametrize("chance", [False, True])
def test_any_number_of_workers_makes_the_same_bytes(
    text: Path, scores: Path, chance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 1)
    config = configured(fraction=0.25, random=chance)
    given = {"text": str(text)} | ({} if chance else {"scores": str(scores)})
    alone, many = (
        a_job(
            "runner.worker.selection.select:select", config, given, text.parent / one, KINDS["cpu"]
        )
        for one in ("alone", "many")
    )
    here(alone)
    shard_jobs.make("select", many, here, map, map)
    made = [digests.sha256(digests.digests(Path(one.out))) for one in (alone, many)]
    assert made[0] == made[1]


def a_job(
    function: str, config: dict[str, Any], given: dict[str, str], place: Path, kind: Kind
) -> Job:
    """A job of a step, in folders below `place`."""
    out = place / "1-maker"
    scratch = out.with_name(f"{out.name}.scratch")
    for folder in (out, scratch):
        folder.mkdir(parents=True)
    inputs: dict[str, str | dict[str, str]] = {**given}
    return Job(function, config, inputs, str(out), str(scratch), "", devices=kind)


def here(job: Job) -> None:
    """Do a job in this process."""
    made: Callable[..., Any] = step_process._imported(job.function)
    made(job.config, step_process._paths(job.inputs), Path(job.out))
    (Path(job.scratch) / RECEIPT).write_text("{}")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(0, 5))),
    st.fractions(0, 1).filter(bool),
)
def test_what_is_kept_is_what_a_sort_in_python_keeps(
    rows: list[tuple[int, int, int]], share: Any
) -> None:
    """Against an oracle: the documents in order of score, draw and place, while there is room."""
    scores, draws, sizes = ([row[n] for row in rows] for n in range(3))
    order = sorted(range(len(rows)), key=lambda n: (-scores[n], draws[n], n))
    for by in ("documents", "bytes"):
        weights = sizes if by == "bytes" else [1] * len(rows)
        room = int(float(share) * sum(weights) + 0.5)
        wanted, used = set(), 0
        for n in order:
            used += weights[n]
            if used > room:
                break
            wanted.add(n)
        documents = Documents(
            np.array(scores, float),
            np.array(draws, np.uint64),
            np.array(sizes, np.int64) if by == "bytes" else None,
        )
        marks = kept(configured(fraction=float(share), by=by), documents)
        assert {*np.flatnonzero(marks).tolist()} == wanted


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda rows: rows[:-1], r"train.00002.jsonl, line 57 is missing, and document 57 of"),
        (lambda rows: [*rows, rows[-1]], r"has more than 57 lines, and .* has 57 documents"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], r"line 1 has the id 'train.00002 1', and doc"),
        (lambda rows: ["{}", *rows[1:]], r'line 1 is no \{"id": "…", "attributes"'),
        (lambda rows: [*rows[:8], "{", *rows[9:]], r"line 9 is not JSON"),
        (lambda rows: [x.replace("score", "rank") for x in rows], r"has no `score`; it has `rank`"),
        (lambda rows: [x.replace(": 7", ": NaN") for x in rows], r"`score` is nan, not a finite"),
        (lambda rows: [x.replace(": 7", ": true") for x in rows], r"`score` is True, not a finite"),
    ],
)
def test_scores_of_other_documents_are_refused_with_file_and_line(
    text: Path, scores: Path, edit: Callable[[list[str]], list[str]], words: str
) -> None:
    path = scores / "train.00002.jsonl"
    path.write_text("\n".join(edit(path.read_text().splitlines())) + "\n")
    for by in ("documents", "bytes"):
        with pytest.raises(BadAttributes, match=words):
            selected(text, scores, fraction=0.5, by=by)


def test_scores_need_a_shard_for_each_shard(text: Path, scores: Path) -> None:
    (scores / "train.00001.jsonl").unlink()
    with pytest.raises(BadAttributes, match=r"the text has 4 shards .* its attributes have 3"):
        selected(text, scores, fraction=0.5)


@pytest.mark.parametrize(
    ("inputs", "config", "said"),
    [
        ("{text: t}", "{}", "`select` needs a `fraction`, or the bounds `least` and `most`"),
        ("{text: t}", "{fraction: 0.1, least: 1}", "`select` needs a `fraction`, or the bounds"),
        ("{text: t}", "{fraction: 0.1}", "`select` needs the input `scores`"),
        ("{text: t}", "{least: 2.5, random: true}", "`select` needs the input `scores`"),
        ("{text: t, scores: s}", "{fraction: 0.1, random: true}", "by chance reads no scores"),
        ("{text: t, scores: s}", "{least: 1.0, by: bytes}", "it says what `fraction` counts"),
        ("{text: t, scores: s}", "{fraction: 1.5}", "less than or equal to 1"),
        ("{text: t, scores: f}", "{fraction: 0.1}", "makes a text, and `select` takes attributes"),
    ],
)
def test_what_cannot_be_selected_is_refused_before_anything_runs(
    inputs: str, config: str, said: str
) -> None:
    declared = (
        "title: T\nresources: {kind: cpu}\nsteps:\n  t: {do: m:f}\n  s: {do: m:f}\n"
        "  f: {do: filter, inputs: {text: t}}\n"
        f"  best: {{do: select, inputs: {inputs}, config: {config}}}\n"
    )
    with pytest.raises(BadExperiment) as it:
        declaration.parse(declared, "experiment.yaml")
    assert said in str(it.value)
    assert "line 7" in str(it.value)
