"""The step that makes a text of a corpus, its plan, and where its licence goes."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.filesize import decimal

from bot.messages.templating import say
from engine.data.documents import split_files
from engine.data.lab_texts import BadText
from engine.data.token_store import TokenStore
from engine.data.tokenize import byte_tokenizer
from runner.history import token_counts
from runner.lib.problems import BadExperiment
from runner.planning import planned_steps, planner
from runner.publish import corpora
from runner.schema.lab_config import CORPORA
from runner.spec import corpus_steps
from runner.spec.step_types import BUILT_IN, KEPT
from runner.store import artifacts, digests
from runner.store.scratch_paths import RECEIPT
from runner.store.store import Store
from runner.worker import shard_jobs, step_process
from runner.worker.models import model_card
from runner.worker.step_process import Job
from runner.worker.texts import corpus as step
from runner.worker.texts import shards
from tests.decided import KINDS
from tests.runner.corpora import WEB, corpus, lines
from tests.runner.corpora import raw as raw
from tests.runner.corpora import store as store

# ── The step ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def _a_process_for_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 1)
    monkeypatch.setattr(step, "SHARD", 300)


Take = Callable[..., Path]


@pytest.fixture
def take(store: Store, tmp_path: Path) -> Take:
    """Makes the step in this process, from the files in `raw` as they are."""

    def made(name: str = "at once", most_left_out: float = 0.01, **entry: Any) -> Path:
        job = a_job(store, tmp_path, name, most_left_out, **entry)
        here(job)
        return Path(job.out)

    return made


def a_job(
    store: Store, tmp_path: Path, name: str, most_left_out: float = 0.01, **entry: Any
) -> Job:
    said = corpus(**entry)
    fetched = corpora.fetch(store, "web@1", said, tmp_path)
    out = tmp_path / "steps" / name / "1-0"
    out.mkdir(parents=True)
    scratch = out.with_name(f"{out.name}.scratch")
    scratch.mkdir()
    return Job(
        function=BUILT_IN["corpus"].function,
        config={
            "corpus": "web@1",
            "most_left_out": most_left_out,
            "found": {**fetched.model_dump(), **said.read()},
        },
        own=(),
        inputs={KEPT: str(store.local(f"corpora/{fetched.sha256}"))},
        out=str(out),
        scratch=str(scratch),
        code="",
        devices=KINDS["cpu"],
    )


def here(job: Job) -> None:
    step_process._imported(job.function)(job.config, step_process._paths(job.inputs), Path(job.out))
    (Path(job.scratch) / RECEIPT).write_text("{}")


def documents(out: Path, split: str) -> list[dict[str, Any]]:
    files = split_files(out, split)
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def report(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "report.json").read_bytes()))


def test_a_corpus_becomes_a_text_with_a_held_out_share_that_depends_on_ids_alone(
    take: Take, raw: Path
) -> None:
    out = take()
    train, held_out = documents(out, "train"), documents(out, "validation")
    assert len(train) + len(held_out) == 80
    assert 5 < len(held_out) < 30
    assert held_out[0].keys() == {"id", "source", "licence", "text"}
    assert all(path.stat().st_size < 400 for path in split_files(out, "train"))
    assert report(out)["sources"]["web"]["kept_documents"] == 80
    assert report(out)["counted"] == {"documents under MIT": 80}
    (raw / "b/1.jsonl").rename(raw / "b/9.jsonl")
    others = {document["id"] for document in documents(take("renamed"), "validation")}
    assert {x["id"] for x in held_out if "/1.jsonl" not in x["id"]} <= others


def test_documents_of_a_group_are_held_out_together(take: Take, raw: Path) -> None:
    for number in range(4):
        (raw / f"b/{number}.jsonl").write_bytes(
            b"".join(lines(f"{number} {n}", host=f"h{n}") for n in range(20))
        )
    out = take(split={"share": 0.3, "by": "host"})
    hosts = {x["host"] for x in documents(out, "validation")}
    assert hosts
    assert not hosts & {x["host"] for x in documents(out, "train")}
    files = take("files", split={"validation": ["b/3*"]})
    assert {x["id"][:4] for x in documents(files, "validation")} == {"b/3."}
    assert len(documents(files, "train")) == 60


def test_any_number_of_workers_makes_the_same_bytes(
    take: Take, store: Store, tmp_path: Path
) -> None:
    at_once = digests.sha256(digests.digests(take()))
    for count in (1, 3):
        job = a_job(store, tmp_path, f"by {count}")
        with ThreadPoolExecutor(count) as pool:
            shard_jobs.make("corpus", job, here, map, pool.map)
        assert digests.sha256(digests.digests(Path(job.out))) == at_once


def test_what_a_killed_fetch_left_in_the_store_is_not_read(
    take: Take, store: Store, tmp_path: Path
) -> None:
    fetched = corpora.fetch(store, "web@1", corpus(), tmp_path)
    place = store.local(f"corpora/{fetched.sha256}") / "files/b"
    (place / ".0.jsonl.0123456789ab.tmp").write_text("{")
    assert len(documents(take(), "train")) > 60
    assert corpora.damaged(store, fetched.sha256) == []


def test_unusable_documents_are_counted_up_to_a_bound_and_then_refused(
    take: Take, raw: Path
) -> None:
    (raw / "b/5.jsonl").write_bytes(b"{}\n" + lines("one") + b"\xff\n")
    words = r"2 of 83 documents of web@1 cannot be used, and most_left_out is 1 %: 1 not UTF-8 "
    with pytest.raises(BadText, match=words + r"\(the first: b/5.jsonl, line 3\), 1 without a t"):
        take()
    out = take("more", most_left_out=0.05)
    assert report(out)["left_out"] == {"not UTF-8": 1, "without a text": 1}
    assert report(out)["alarms"][0] == "Left out: 1 not UTF-8 (the first: b/5.jsonl, line 3)."


def test_a_corpus_without_a_split_is_refused_unless_nothing_is_to_be_held_out(take: Take) -> None:
    with pytest.raises(BadText, match="no document of web@1 is in the validation split"):
        take(split={"validation": ["x/**"]})
    out = take("none", split={"validation": []})
    assert (len(documents(out, "train")), documents(out, "validation")) == (80, [])


def test_a_file_that_was_changed_in_the_store_is_not_read(store: Store, tmp_path: Path) -> None:
    job = a_job(store, tmp_path, "changed")
    file = Path(str(job.inputs[KEPT])) / "files/b/2.jsonl"
    file.write_bytes(file.read_bytes().replace(b"document", b"decoment"))
    with pytest.raises(BadText, match=r"b/2.jsonl in the store is not the file that was fetched"):
        here(job)
    other = replace(job, config={**job.config, "found": job.config["found"] | {"sha256": "0" * 64}})
    with pytest.raises(BadText, match="no list of files with the plan's digest"):
        here(other)


# ── Plans and licences ───────────────────────────────────────────────────────────────────────────

HEAD = "title: A corpus\nresources: {kind: cpu}\n"
STEPS = f"""{HEAD}steps:
  web: {{do: corpus, config: {{corpus: web@1}}}}
  tokens: {{do: tokenize, inputs: {{text: web}}}}
"""
ARMS = f"""{HEAD}data: {{corpus: web@1}}
model: {{hidden_dim: 16, num_layers: 1, num_heads: 2, intermediate_dim: 32, seq_len: 16}}
train: {{train_batch_size: 2, num_train_steps: 4, learning_rate: 1.0e-3}}
"""


def declared(tmp_path: Path, text: str, registry: str) -> Path:
    folder = tmp_path / "experiments/a"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text(text)
    place = tmp_path / CORPORA
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(registry)
    return folder


def entry(fetched: Any) -> str:
    said = f'{{sha256: "{fetched.sha256}", files: {fetched.files}, bytes: {fetched.bytes}}}'
    return f"web@1:\n  {WEB}\n  split: {{share: 0.2}}\n  fetched: {said}\n"


@pytest.mark.parametrize(
    ("registry", "words"),
    [
        ("{}", "the lab has no corpus `web@1`; `regatta corpus ls` lists them, and `regatta cor"),
        (f"web@2:\n  {WEB}\n", "the lab has no corpus `web@1`; did you mean `web@2`"),
        (
            f"web@1:\n  {WEB}\n  package: web-doc\n",
            "was not fetched.*`apt-get install web-doc` and `regatta corpus fetch web@1`",
        ),
    ],
)
@pytest.mark.parametrize("form", [STEPS, ARMS])
def test_a_plan_says_which_command_fetches_what_is_missing(
    tmp_path: Path, form: str, registry: str, words: str
) -> None:
    with pytest.raises(BadExperiment, match=words) as refused:
        planner.plan_folder(declared(tmp_path, form, registry))
    (problem,) = refused.value.problems
    assert problem.field in ("steps.web.config.corpus", "data.corpus")
    assert problem.line in (3, 4)


@pytest.mark.parametrize("form", [STEPS, ARMS])
def test_a_plan_has_digest_licence_and_size_and_the_store_must_have_the_files(
    tmp_path: Path, store: Store, form: str
) -> None:
    fetched = corpora.fetch(store, "web@1", corpus(), tmp_path)
    folder = declared(tmp_path, form, entry(fetched))
    plan = planner.plan_folder(folder, store)
    (taken,) = (one for one in plan.steps.values() if one.do == "corpus")
    found = taken.config["found"]
    assert (found["licence"], found["sha256"], found["files"]) == ("MIT", fetched.sha256, 4)
    if plan.data:
        assert (plan.data.source, plan.data.train_tokens) == ("web@1", None)
        assert plan.data.train_sha256 != plan.data.validation_sha256
    (line,) = corpus_steps.told(plan.steps)
    assert line == f"web@1: MIT, 4 files, {decimal(fetched.bytes)}, SHA-256 {fetched.sha256[:16]}…"
    assert f"SHA-256 {fetched.sha256[:16]}…" in say("measures", plan=plan), "and so do comments"
    another = Store(tmp_path / "another")
    place = f"corpora/{fetched.sha256}/files"
    another.upload_folder(place, store.local(place))  # by a fetch that was killed
    with pytest.raises(BadExperiment, match="fetches them with `regatta corpus fetch web@1`"):
        planner.plan_folder(folder, another)


def test_own_code_may_have_a_key_of_the_name_that_plans_use(tmp_path: Path, store: Store) -> None:
    text = f"{HEAD}steps:\n  a: {{do: 'own:step', config: {{found: true, corpus: web@1}}}}\n"
    folder = declared(tmp_path, text, "{}")
    (folder / "own.py").write_text("def step(config, inputs, out): ...\n")
    plan = planner.plan_folder(folder, store)
    assert list(corpus_steps.told(plan.steps)) == []
    assert planner.kept_folder(plan.steps["a"]) is None


def test_a_plan_has_the_tokens_of_a_corpus_once_they_are_made(tmp_path: Path, store: Store) -> None:
    fetched = corpora.fetch(store, "web@1", corpus(), tmp_path)
    plan = planner.plan_folder(declared(tmp_path, STEPS, entry(fetched)))
    assert list(token_counts.told(store, plan)) == []

    def build(out: Path) -> None:
        for split, text in (("train", "a" * 1234), ("validation", "b" * 56)):
            TokenStore.build(out / split, iter([text]), byte_tokenizer())

    made = plan.steps["tokens"]
    artifacts.make(store, made.store, made.fingerprint, build, {})
    assert list(token_counts.told(store, plan)) == ["tokens: 1,234 tokens to train on, 56 held out"]


def test_where_a_corpus_is_from_does_not_matter_but_how_it_is_read_does(
    tmp_path: Path, store: Store
) -> None:
    text = entry(corpora.fetch(store, "web@1", corpus(), tmp_path))

    def fingerprint(registry: str) -> str:
        return planner.plan_folder(declared(tmp_path, STEPS, registry)).steps["web"].fingerprint

    first = fingerprint(text)
    assert fingerprint(text.replace("raw", "elsewhere")) == first
    assert fingerprint(text.replace("mit", "isc")) != first
    assert fingerprint(text.replace("0.2", "0.3")) != first


def test_the_licence_of_a_corpus_is_in_the_card_of_a_model_that_was_trained_on_it(
    tmp_path: Path, store: Store
) -> None:
    fetched = corpora.fetch(store, "web@1", corpus(), tmp_path)
    text = entry(fetched).replace("mit", "cc-by-sa-4.0")
    plan = planner.plan_folder(declared(tmp_path, ARMS, text))
    model = "train/main,seed=0"
    about = planned_steps.about("T", "E", {"models": [model]}, plan.steps)
    config = {"about": about, "licence": None}
    shape = {"num_layers": 1, "hidden_dim": 16, "seq_len": 16, "vocab_size": 256}
    card = model_card.written(config, "main,seed=0", shape, 1000, {}, chats=False)
    assert "trained on texts under these licences:\n\n- `web@1`: CC-BY-SA-4.0" in card
    assert f"(corpus): `web@1`, {fetched.bytes:,} bytes in 4 files" in card
