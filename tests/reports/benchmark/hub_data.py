"""Made-up data sets in the columns of those that `suite: marin-8b` asks, as a folder for `data`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

Rows = list[dict[str, Any]]
LETTERS = "ABCDEFGHIJ"


def _lettered(n: int, count: int = 4) -> dict[str, list[str]]:
    return {"text": [f"word {n} {one}" for one in range(count)], "label": list(LETTERS[:count])}


def _arc(n: int) -> dict[str, Any]:
    return {"question": f"Which word is number {n}?", "choices": _lettered(n), "answerKey": "B"}


def _bbh(n: int) -> dict[str, Any]:
    return {"input": f"Is it {n}?", "target": "(A)"}


def _agieval(n: int) -> dict[str, Any]:
    return {
        "query": f"Q: which is {n}?",
        "choices": [f"({x}){n}" for x in "ABCDE"],
        "gold": [n % 5],
    }


def _boolq(n: int) -> dict[str, Any]:
    return {"passage": f"It is {n}.", "question": f"is it {n}", "label": n % 2}


def _copa(n: int) -> dict[str, Any]:
    pair = {"choice1": f"It was {n}.", "choice2": "It was not."}
    return {"premise": "It rained.", "question": ("cause", "effect")[n % 2], **pair, "label": n % 2}


def _csqa(n: int) -> dict[str, Any]:
    return {"question": f"Where is {n}?", "choices": _lettered(n, 5), "answerKey": "C"}


def _hellaswag(n: int) -> dict[str, Any]:
    context = {"ctx_a": f"A man counts to {n}.", "ctx_b": "then he", "activity_label": "Counting"}
    return {**context, "endings": [f"stops {x}." for x in range(4)], "label": str(n % 4)}


def _lambada(n: int) -> dict[str, Any]:
    return {"text": f"He counted to {n} and then he stopped"}


def _openbook(n: int) -> dict[str, Any]:
    return {"question_stem": f"The number {n} is", "choices": _lettered(n), "answerKey": "D"}


def _piqa(n: int) -> dict[str, Any]:
    return {"goal": f"Count to {n}", "sol1": "one, two", "sol2": "two, one", "label": n % 2}


def _wsc(n: int) -> dict[str, Any]:
    text = f"Ann saw Bea when she was {n}."
    where = text.index("she")
    of = {"pronoun": "she", "pronoun_loc": where, "quote": "she was", "quote_loc": where}
    return {"text": text, **of, "options": ["Ann", "Bea"], "label": n % 2, "source": "made up"}


def winogrande(n: int) -> dict[str, Any]:
    """Sentence n, whose right option alternates."""
    said = f"The cup did not fit into box {n} because the _ was too large."
    return {"sentence": said, "option1": "cup", "option2": "box", "answer": str(n % 2 + 1)}


def _mmlu(n: int) -> dict[str, Any]:
    return {"question": f"What is {n}?", "choices": list("wxyz"), "answer": n % 4}


def _mmlu_pro(n: int) -> dict[str, Any]:
    return {"question": f"What is {n}?", "options": list("qrstuvwxyz"), "answer": LETTERS[n % 10]}


def _gpqa(n: int) -> dict[str, Any]:
    wrong = {f"Incorrect Answer {x}": f"wrong {x}" for x in (1, 2, 3)}
    return {"Question": f"What is {n}?", "Correct Answer": "right", **wrong}


def _gsm8k(n: int) -> dict[str, Any]:
    return {"question": f"What is {n} + 1?", "answer": f"It is {n} + 1.\n#### {n + 1}"}


HELD_OUT = ("train", "validation", "test")
SETS: dict[str, tuple[Any, tuple[str | None, ...], tuple[str, ...]]] = {
    "hails/agieval-lsat-ar": (_agieval, (None,), ("test",)),
    "allenai/ai2_arc": (_arc, ("ARC-Easy", "ARC-Challenge"), HELD_OUT),
    "aps/super_glue": (_boolq, ("boolq",), ("train", "validation")),
    "tau/commonsense_qa": (_csqa, (None,), ("train", "validation")),
    "Rowan/hellaswag": (_hellaswag, (None,), ("train", "validation")),
    "EleutherAI/lambada_openai": (_lambada, ("default",), ("test",)),
    "allenai/openbookqa": (_openbook, ("main",), HELD_OUT),
    "baber/piqa": (_piqa, (None,), ("train", "validation")),
    "lighteval/winograd_wsc": (_wsc, ("wsc273",), ("test",)),
    "allenai/winogrande": (winogrande, ("winogrande_xl",), ("train", "validation")),
    "TIGER-Lab/MMLU-Pro": (_mmlu_pro, (None,), ("validation", "test")),
    "openai/gsm8k": (_gsm8k, ("main",), ("train", "test")),
    "Idavidrein/gpqa": (_gpqa, ("gpqa_main", "gpqa_diamond", "gpqa_extended"), ("train",)),
}


def write(folder: Path, subjects: list[str], puzzles: list[str], count: int = 12) -> None:
    """All data sets. `subjects` of MMLU and `puzzles` of BBH are configurations there."""
    sets = SETS | {
        "cais/mmlu": (_mmlu, tuple(subjects), ("dev", "test")),
        "SaylorTwift/bbh": (_bbh, tuple(puzzles), ("test",)),
    }
    for number, (path, (row, names, splits)) in enumerate(sets.items()):
        for name in names:
            for split in splits:
                rows = [row(n) for n in range(count)]
                place = folder / path / (name or "")
                place.mkdir(parents=True, exist_ok=True)
                if number % 2:  # Parquet as at the Hub, and JSON lines as people write them
                    file = place / f"{split}-00000-of-00001.parquet"
                    parquet.write_table(pa.Table.from_pylist(rows), file)
                else:
                    (place / f"{split}.jsonl").write_text("".join(_lines(rows)))
    copa = folder / "aps/super_glue/copa"
    copa.mkdir()
    for split in ("train", "validation"):
        (copa / f"{split}.jsonl").write_text("".join(_lines([_copa(n) for n in range(count)])))


def _lines(rows: Rows) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row) + "\n"
