"""What `dedup` leaves out, what it keeps, and what it says of both."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.data import shingles
from engine.data.lab_texts import BadText
from runner.worker.selection import decontaminate
from runner.worker.texts import dedup, duplicates

CONFIG: dict[str, Any] = {"similarity": 0.8, "alarm_above": 0.5}
WORDS = [f"{a}{b}" for a in ("stone", "river", "cloud", "ember") for b in range(500)]


class Made:
    """The output of the step for these documents of each split."""

    def __init__(
        self,
        folder: Path,
        train: Sequence[Any],
        validation: Sequence[Any] = ("held out",),
        config: dict[str, Any] = CONFIG,
    ) -> None:
        (folder / "text").mkdir()
        (folder / "out").mkdir()
        for split, documents in (("train", train), ("validation", validation)):
            lines = (x if isinstance(x, dict) else {"text": x} for x in documents)
            written = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"text/{split}.jsonl").write_text(written)
        self.out = folder / "out"
        dedup.deduplicate(config, {"text": folder / "text"}, self.out)
        self.train, self.validation = self.lines("train"), self.lines("validation")
        self.pairs = self.lines("pairs")
        self.report = json.loads((self.out / "report.json").read_text())

    def lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in (self.out / f"{name}.jsonl").open()]


def text(seed: int, count: int = 100) -> list[str]:
    return random.Random(seed).sample(WORDS, count)


def edited(words: list[str], edits: int, seed: int = 0) -> list[str]:
    """The text with so many words replaced, each far from the others."""
    changed = list(words)
    for n in range(edits):
        changed[5 + n * (len(words) // edits)] = f"new{seed}x{n}"
    return changed


def jaccard(one: list[str], other: list[str]) -> float:
    a, b = (set(zip(x, x[1:], x[2:], strict=False)) for x in (one, other))
    return len(a & b) / len(a | b)


def test_of_equal_texts_the_first_is_kept_with_all_its_keys(tmp_path: Path) -> None:
    first = {"text": "Some\u00e9  Words,\nhere", "id": "first", "licence": "CC0-1.0"}
    made = Made(tmp_path, [first, {"text": " somee\u0301 words, here "}, "some words; here"])
    assert made.train == [first, {"text": "some words; here"}]
    assert made.pairs == [
        {
            "dropped": "train:2",
            "kept": "first",
            "similarity": 1.0,
            "why": "same text as a kept document",
        }
    ]
    assert made.report["left_out"] == {"same text as a kept document": 1}
    assert sorted(path.name for path in made.out.iterdir()) == [
        *("pairs.jsonl", "report.json", "train.jsonl", "validation.jsonl")
    ]


def test_of_a_chain_whose_ends_are_not_alike_both_ends_are_kept(tmp_path: Path) -> None:
    a = text(1)
    b = edited(a, 3)
    c = [*b[:88], *(f"end{n}" for n in range(12))]
    assert jaccard(a, b) >= 0.8
    assert jaccard(b, c) >= 0.75
    assert jaccard(a, c) < 0.75
    of_b, of_c = shingles.bands(
        *shingles.shingles_of_each(*shingles.words([" ".join(b), " ".join(c)]))
    )
    assert (of_b == of_c).any(), "so that b and c are proposed as a pair"
    made = Made(
        tmp_path,
        [{"text": " ".join(x), "id": name} for name, x in (("a", a), ("b", b), ("c", c))],
        config=CONFIG | {"similarity": 0.75},
    )
    assert [document["id"] for document in made.train] == ["a", "c"]
    (pair,) = made.pairs
    assert (pair["dropped"], pair["kept"]) == ("b", "a")
    assert pair["similarity"] == pytest.approx(jaccard(a, b), abs=1e-4)


def test_what_is_wholly_inside_a_kept_document_goes_and_what_has_more_stays(
    tmp_path: Path,
) -> None:
    long = text(2, 130)
    made = Made(tmp_path, [" ".join(long), " ".join(long[:101]), " ".join(text(3))])
    assert len(made.train) == 2
    assert made.pairs[0]["why"] == "all of it is in a kept document"
    (tmp_path / "other").mkdir()
    made = Made(tmp_path / "other", [" ".join(long[:101]), " ".join(long)])
    assert len(made.train) == 2


def test_training_documents_that_the_validation_split_has_go(tmp_path: Path) -> None:
    held, others = text(4), [" ".join(text(n)) for n in range(5, 8)]
    train = [
        {"text": " ".join(edited(held, 2)), "id": "near"},
        {"text": " ".join([*held, *(f"more{n}" for n in range(28))]), "id": "around"},
        {"text": " ".join(held).upper(), "id": "same"},
        *others,
    ]
    made = Made(tmp_path, train, [" ".join(held), " ".join(text(9)), " ".join(held)])
    assert [document["text"] for document in made.train] == others
    assert len(made.validation) == 2
    assert {pair["dropped"]: pair["why"] for pair in made.pairs} == {
        "validation:3": "same text as a kept document",
        "near": "near-duplicate of a kept document of the validation split",
        "around": "it has all of a document of the validation split",
        "same": "same text as a kept document of the validation split",
    }
    assert {pair["kept"] for pair in made.pairs} == {"validation:1"}


def test_a_text_whose_training_split_is_in_validation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadText, match="no document of the train split is left"):
        Made(tmp_path, ["a b c d", "A b c d!"], ["a b c d"])


def test_without_a_similarity_only_equal_texts_go(tmp_path: Path) -> None:
    words = text(1)
    train = [" ".join(words), " ".join(edited(words, 1)), " ".join(words)]
    made = Made(tmp_path, train, config=CONFIG | {"similarity": None})
    assert [document["text"] for document in made.train] == train[:2]
    assert made.report["counted"] == {}


def test_a_source_of_one_template_raises_the_alarm_and_others_do_not(tmp_path: Path) -> None:
    template = text(1, 300)
    pages = [{"text": " ".join(edited(template, 2, n)), "source": "forms"} for n in range(40)]
    prose = [{"text": " ".join(text(n)), "source": "prose"} for n in range(100, 140)]
    made = Made(tmp_path, [*pages, *prose])
    (alarm,) = made.report["alarms"]
    assert alarm.startswith("The source forms lost 39 of its 40 documents (97.5 %).")
    assert made.report["sources"]["forms"]["kept_documents"] == 1
    assert made.report["sources"]["prose"]["kept_documents"] == 40


def test_documents_without_words_differ_unless_they_are_equal(tmp_path: Path) -> None:
    made = Made(tmp_path, ["...", "!", "…", " ... ", "", ""])
    assert [document["text"] for document in made.train] == ["...", "!", "…", ""]


def test_a_later_equal_text_names_the_document_that_is_kept(tmp_path: Path) -> None:
    words = text(1)
    near = " ".join(edited(words, 1))
    made = Made(tmp_path, [" ".join(words), near, near.upper()])
    assert [pair["kept"] for pair in made.pairs] == ["train:1", "train:1"]


def planted(count: int, seed: int) -> list[list[str]]:
    """So many random texts, then copies of a third of them with 0 to 9 words replaced."""
    found = [text(1000 * seed + n) for n in range(count)]
    chosen = random.Random(seed)
    return found + [
        edited(chosen.choice(found), k % 10, k) if k % 10 else list(found[k])
        for k in range(count // 3)
    ]


def test_planted_pairs_are_found_and_no_others(tmp_path: Path) -> None:
    texts = planted(300, seed=1)
    made = Made(tmp_path, [" ".join(words) for words in texts])
    best = {
        f"train:{n + 1}": max(jaccard(texts[n], other) for other in texts[:300])
        for n in range(300, len(texts))
    }
    dropped = {pair["dropped"] for pair in made.pairs}
    assert all(best[name] >= 0.8 for name in dropped), "precision is 1: each pair was verified"
    clear = {name for name, similarity in best.items() if similarity >= 0.9}
    assert len(clear) >= 20
    assert clear <= dropped
    similar = {name for name, similarity in best.items() if similarity >= 0.8}
    assert len(dropped) >= 0.9 * len(similar)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "train.jsonl.gz",
            gzip.compress(b'{"text": "cut"}\n' * 999, mtime=0)[:-9],
            "truncated or damaged",
        ),
        ("train.jsonl", b'{"text": "whole"}\n{"text": "in ha', "line 2 is not JSON"),
        ("train.jsonl", b'{"text": "one"}\n{"text": "\xff"}\n', "line 2 is not UTF-8"),
        ("train.jsonl", b'{"text": "one"}\n{"words": "no"}\n', "line 2"),
        ("train.jsonl", b'{"text": "one"}\n{"text": 2}\n', "line 2 has int as its"),
    ],
)
@pytest.mark.parametrize("do", [dedup.deduplicate, decontaminate.decontaminate])
def test_a_damaged_shard_is_refused_with_file_and_line(
    tmp_path: Path, name: str, content: bytes, words: str, do: Callable[..., None]
) -> None:
    for folder in ("text", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "text" / name).write_bytes(content)
    (tmp_path / "text/validation.jsonl").write_text('{"text": "held out"}\n')
    config = CONFIG | {"tasks": (), "share": 0.5, "hits": 8, "common_above": 0.001}
    with pytest.raises(BadText, match=words) as raised:
        do(config, {"text": tmp_path / "text"}, tmp_path / "out")
    assert name in str(raised.value)


def test_a_crowded_band_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_KEPT", 1)
    base = text(1, 300)
    alike = [" ".join(edited(base, 6, n)) for n in range(12)]
    made = Made(tmp_path, alike, config=CONFIG | {"similarity": 1.0})
    assert len(made.train) == 12
    crowded = "kept documents that were not remembered under a crowded band"
    assert made.report["counted"][crowded] > 0
