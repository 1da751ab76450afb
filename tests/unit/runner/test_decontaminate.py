"""Which training documents `decontaminate` leaves out: those that have an item, however its lines
are wrapped, and no others."""

import json
import random
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.data.lab_texts import BadText
from runner.spec.benchmarks import Decontaminate
from runner.worker.selection import decontaminate

WORDS = [f"{a}{b}" for a in ("stone", "river", "cloud", "ember") for b in range(500)]
ITEMS = [
    {
        "prompt": " ".join(random.Random(n).sample(WORDS, 40)).capitalize() + "?",
        "answer": " " + " ".join(random.Random(-n).sample(WORDS, 3)),
    }
    for n in range(1, 6)
]


def text(seed: int, count: int = 100) -> str:
    return " ".join(random.Random(seed).sample(WORDS, count))


def written(item: dict[str, Any]) -> str:
    return f"{item['prompt']}{item['answer']}"


class Made:
    """The output of the step for these training documents."""

    def __init__(
        self,
        folder: Path,
        train: Sequence[str],
        items: Sequence[dict[str, Any]] = ITEMS,
        held_out: Sequence[str] = (),
        **config: Any,
    ) -> None:
        for name in ("text", "kept", "held", "out"):
            (folder / name).mkdir(parents=True)
        inputs = {"text": folder / "text", "kept": folder / "kept"}
        self._write(folder / "text/train.jsonl", [{"text": one} for one in train])
        self._write(folder / "text/validation.jsonl", [{"text": written(ITEMS[0])}])
        self._write(folder / "kept/sums.jsonl", items)
        if held_out:
            inputs["held_out"] = folder / "held"
            self._write(folder / "held/validation.jsonl", [{"text": one} for one in held_out])
            self._write(folder / "held/train.jsonl", [{"text": one} for one in train])
        asked = {"tasks": ["sums.jsonl"] if items else [], **config}
        settings = Decontaminate.model_validate(asked).model_dump(mode="json")
        self.out = folder / "out"
        decontaminate.decontaminate(settings, inputs, self.out)
        self.train = [line["text"] for line in self.lines("train")]
        self.found = self.lines("contaminated")
        self.report = json.loads((self.out / "report.json").read_text())

    @staticmethod
    def _write(path: Path, lines: Sequence[Any]) -> None:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in (self.out / f"{name}.jsonl").open()]


def test_an_item_is_found_verbatim_wrapped_anew_and_inside_of_another_text(
    tmp_path: Path,
) -> None:
    plants = [
        written(ITEMS[0]),
        textwrap.fill(written(ITEMS[1]).upper(), 20),
        f"{text(100, 900)}\n\n> {textwrap.fill(written(ITEMS[2]), 30)}\n\n{text(101, 900)}",
    ]
    clean = [text(n) for n in range(200, 210)]
    made = Made(tmp_path, [*clean, *plants])
    assert made.train == clean
    assert made.found == [
        {
            "dropped": f"train:{11 + n}",
            "of": "sums",
            "passage": f"sums, item {n + 1}",
            "share": 1.0,
            "hits": 31,
        }
        for n in range(3)
    ]
    assert made.report["left_out"] == {"it has an item of sums": 3}
    assert made.report["counted"]["items of sums"] == 5
    assert made.report["counted"]["items of sums that the text had"] == 3
    assert len(made.lines("validation")) == 1, "the validation split stays whole"


@pytest.mark.parametrize(("kept_words", "gone"), [(27, True), (26, False)])
def test_half_of_an_items_13_grams_is_the_border(
    tmp_path: Path, kept_words: int, gone: bool
) -> None:
    item = {"prompt": text(1, 40), "answer": " end"}  # 41 words, 29 13-grams
    beginning = " ".join(item["prompt"].split()[:kept_words])
    made = Made(tmp_path, [f"{text(5)} {beginning} {text(6)}", text(7)], [item], hits=None)
    assert bool(made.found) is gone


@pytest.mark.parametrize(("hits", "gone"), [(8, True), (9, False), (None, False)])
def test_so_many_13_grams_of_a_long_item_are_enough(
    tmp_path: Path, hits: int | None, gone: bool
) -> None:
    item = {"prompt": text(1, 200), "answer": " end"}
    part = " ".join(item["prompt"].split()[50:70])  # 20 words, 8 13-grams
    made = Made(tmp_path, [f"{text(5)} {part} {text(6)}", text(7)], [item], hits=hits)
    assert bool(made.found) is gone


def test_items_and_paragraphs_of_fewer_than_13_words_flag_nothing(tmp_path: Path) -> None:
    short = " ".join(WORDS[:12])
    made = Made(
        tmp_path,
        [short, f"{short}\n\n{short} {short}", text(3)],
        [{"prompt": " ".join(WORDS[:11]), "answer": f" {WORDS[11]}"}],
        [f"{short}\n\n{short}"],
    )
    assert made.found == []
    counted = made.report["counted"]
    assert counted["items of sums with fewer than 13 words, which cannot be found"] == 1
    assert (
        counted["paragraphs of the held-out text with fewer than 13 words, which cannot be found"]
        == 2
    )


def test_a_paragraph_of_a_held_out_text_is_found_and_its_train_split_is_not_looked_for(
    tmp_path: Path,
) -> None:
    held = f"{text(50)}\n\n{text(51)}"
    clean = [text(n) for n in range(200, 205)]
    made = Made(tmp_path, [*clean, f"{text(1)} {text(51)} {text(2)}"], (), [text(49), held])
    assert made.train == clean
    assert made.found[0]["passage"] == "validation:2, paragraph 2"
    assert made.report["left_out"] == {"it has a passage of the held-out text": 1}


def test_boilerplate_flags_nothing_and_is_said(tmp_path: Path) -> None:
    licence = text(1, 60)
    items = [{"text": f"{licence} {text(2, 20)}"}, {"text": licence}]
    train = [*(f"{licence} {text(100 + n)}" for n in range(21)), text(900)]
    plant = f"{text(3)} {text(2, 20)} {text(4)}"
    made = Made(tmp_path, [*train, plant], items)
    assert made.train == train
    assert made.found[0]["passage"] == "sums, item 1"
    (alarm,) = made.report["alarms"]
    assert alarm.startswith("2 items of sums are boilerplate by at least a half")
    made = Made(tmp_path / "one less", [*train[1:], plant], items)
    assert len(made.found) == 21, "20 documents are not too many"


def test_a_text_that_is_nothing_but_items_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadText, match="no document of the train split is left"):
        Made(tmp_path, [written(ITEMS[0])])


def test_a_document_with_several_items_goes_once_for_the_one_it_has_most_of(
    tmp_path: Path,
) -> None:
    most = " ".join(written(ITEMS[0]).split()[:35])
    made = Made(tmp_path, [f"{most} {written(ITEMS[1])}", text(1001)])
    (line,) = made.found
    assert line["passage"] == "sums, item 2"
    assert made.report["counted"]["items of sums that the text had"] == 2


def test_made_tasks_are_refused_because_their_text_is_what_counts() -> None:
    with pytest.raises(ValueError, match="name that text as the input `held_out`"):
        Decontaminate.model_validate({"tasks": ["cloze"]})
