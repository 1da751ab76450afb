"""What users of other decontaminators reported, by the step `decontaminate`. The inputs are
ours."""

import json
import textwrap
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.runner.test_decontaminate import ITEMS, Made, text, written

HINDI = (
    "लड़का रोज़ सुबह स्कूल जाता है और शाम को घर आता है क्योंकि उसे वहाँ पढ़ना बहुत अच्छा लगता है और वह "
    "हर दिन नई किताब लाता है"
)
OTHER = HINDI.replace("ता है", "ती थी").replace("का", "की").replace("को", "के").replace("ना", "नी")
CHINESE = "渡轮每天早上九点从北岸出发，下午五点返回；请问一位乘客中午最多可以在南岸停留几个小时？"
FRENCH = (
    "Le côté où l'hôtel a été bâti n'est pas celui du théâtre, et le maître d'hôtel y a dîné hier"
)
QUOTED = "The ferry can't wait, it doesn't stop, and we're told that nobody's ticket is valid today"
CODE = {
    "prompt": "def ferries(hours):\n    # How many ferries leave in so many hours?\n"
    "    # There is one every twenty minutes,\n    # and none in the first hour of a day.\n",
    "entry_point": "ferries",
    "canonical_solution": "    return max(0, 3 * (hours - 1))\n",
    "test": "def check(candidate):\n    assert candidate(2) == 3\n",
}
SUM = {
    "prompt": "def add(x, y):\n",
    "entry_point": "add",
    "canonical_solution": "    return x + y\n",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}
ITEM = written(ITEMS[1])
CLEAN = text(9)


def item(prompt: str, answer: str = " yes") -> list[dict[str, Any]]:
    return [*ITEMS, {"prompt": prompt, "answer": answer}]


def words(first: int, last: int) -> str:
    """These words of an item of 43."""
    return " ".join(ITEM.split()[first:last])


class Case(NamedTuple):
    """Documents that are left out and that are kept, and what the report counts."""

    gone: list[str]
    kept: list[str]
    items: list[dict[str, Any]] = ITEMS
    config: Mapping[str, Any] = {}  # never changed
    counted: Mapping[str, int] = {}  # never changed


CASES = {
    # An item is found wherever it is
    "marin-community/marin#6852": Case(["\n".join(textwrap.wrap(ITEM, 30))], []),
    "marin-community/marin#6852, inside": Case([f"{text(7, 900)} {ITEM} {text(8, 900)}"], []),
    "allenai/bff#3": Case(
        [f"{text(103)}\n\n{text(104, 300)} {ITEM} {text(105, 9)}\n\n{text(106)}"], []
    ),
    "marin-community/marin#5519": Case([f"{text(20 + n)} {ITEM}" for n in range(15)], []),
    "stanford-crfm/helm#1388": Case(
        [json.dumps({"q": "\n".join(textwrap.wrap(ITEM, 40)), "a": 1}), json.dumps(ITEM)], []
    ),
    "stanford-crfm/helm#1388, other scripts": Case(
        [json.dumps(FRENCH.upper()), json.dumps({"q": CHINESE})],
        [],
        [*item(FRENCH), *item(CHINESE)],
    ),
    "bigcode-project/bigcode-analysis#16": Case(
        ["import os\n\n" + CODE["prompt"] + CODE["canonical_solution"]], [], [CODE]
    ),
    "bigcode-project/bigcode-analysis#16, as JSON": Case([json.dumps(CODE)], [], [CODE]),
    "bigcode-project/bigcode-analysis#16, with tabs": Case(
        [json.dumps({**CODE, "prompt": CODE["prompt"].replace("    ", "\t")})], [], [CODE]
    ),
    # So much of an item is enough
    "allenai/dolma#264": Case(
        [f"{text(105)} {words(0, 38)} {text(106)}"], [], config={"share": 0.7}
    ),
    "marin-community/marin#5650": Case([], [f"{words(0, 18)} {CLEAN}"]),
    "KbsdJames/Omni-MATH#4": Case([], [f"{text(105)} {words(9, 22)} {text(106)}"]),
    # What is short or general is no item, and the report says how many cannot be found
    "marin-community/marin#5656": Case(
        [],
        [f"... A. ## yes {CLEAN}"],
        [*ITEMS, {"prompt": "...", "answer": "A."}, {"prompt": "##", "answer": " yes"}],
        counted={"items of sums with fewer than 13 words, which cannot be found": 2},
    ),
    "marin-community/marin#200": Case(
        [],
        ["What is the capital of France? Paris"],
        item("What is the capital of France?", " Paris"),
        counted={"items of sums with fewer than 13 words, which cannot be found": 1},
    ),
    "EleutherAI/lm-evaluation-harness#3481": Case(
        [],
        ["To dry a ferry's deck, use a broad mop."],
        item("How do I dry a deck?", " Use a broad mop."),
        counted={"items of sums": 6},
    ),
    "bigcode-project/bigcode-dataset#23": Case(
        [], ["def f(x, y):\n    return x + y\n"], [CODE, SUM]
    ),
    "marin-community/marin#7126": Case(
        [], [f"{ITEM} {text(20 + n)}" for n in range(60)], config={"common_above": 0.1}
    ),
    # Words are those of all scripts
    "karpathy/minbpe#73": Case([HINDI], [OTHER], item(HINDI, " हाँ")),
    "k0valik/pi-blackhole#106": Case(
        [f"今天的练习：{CHINESE}四个小时。"], [CHINESE[:20]], item(CHINESE, "四个小时")
    ),
    "apertium/organisation#24": Case(
        [unicodedata.normalize("NFD", FRENCH)], [], item(unicodedata.normalize("NFC", FRENCH))
    ),
    "SeraphimSerapis/tool-eval-bench#133": Case([QUOTED.replace("'", "’")], [], item(QUOTED)),
}


@pytest.mark.parametrize("report", CASES)
def test_documents_with_items_are_left_out_and_no_others(report: str, tmp_path: Path) -> None:
    case = CASES[report]
    kept = [*case.kept, CLEAN]
    made = Made(tmp_path, [*case.gone, *kept], case.items, **case.config)
    assert made.train == kept
    assert sum(made.report["left_out"].values()) == len(case.gone)
    assert case.counted.items() <= made.report["counted"].items()
