"""What users of other decontaminators reported, by the step `decontaminate`."""

import textwrap
from pathlib import Path

from tests.unit.runner.test_decontaminate import ITEMS, Made, text, written

HINDI = (
    "लड़का रोज़ सुबह स्कूल जाता है और शाम को घर आता है क्योंकि उसे वहाँ पढ़ना बहुत अच्छा लगता है और वह "
    "हर दिन नई किताब लाता है"
)
OTHER = HINDI.replace("ता है", "ती थी").replace("का", "की").replace("को", "के").replace("ना", "नी")


def test_marin_6852_an_item_in_short_lines_is_found(tmp_path: Path) -> None:
    wrapped = "\n".join(textwrap.wrap(written(ITEMS[1]), 30))
    assert Made(tmp_path, [wrapped, text(9)]).train == [text(9)]


def test_marin_6852_an_item_inside_of_a_long_paragraph_is_found(tmp_path: Path) -> None:
    inside = f"{text(7, 900)} {written(ITEMS[1])} {text(8, 900)}"
    assert Made(tmp_path, [inside, text(9)]).train == [text(9)]


def test_marin_5656_items_of_a_few_signs_flag_nothing(tmp_path: Path) -> None:
    items = [*ITEMS, {"prompt": "...", "answer": "A."}, {"prompt": "##", "answer": " yes"}]
    kept = [f"... A. ## yes {text(9)}"]
    assert Made(tmp_path, kept, items).train == kept


def test_marin_5650_less_than_the_share_flags_nothing(tmp_path: Path) -> None:
    part = " ".join(written(ITEMS[1]).split()[:18])
    kept = [f"{part} {text(9)}"]
    assert Made(tmp_path, kept).train == kept


def test_marin_7126_what_many_documents_share_is_no_item(tmp_path: Path) -> None:
    shared = [f"{written(ITEMS[1])} {text(20 + n)}" for n in range(60)]
    assert len(Made(tmp_path, shared, common_above=0.1).train) == 60


def test_minbpe_73_words_with_other_vowel_signs_are_other_words(tmp_path: Path) -> None:
    items = [*ITEMS, {"prompt": HINDI, "answer": " हाँ"}]
    assert Made(tmp_path, [HINDI, OTHER, text(9)], items).train == [OTHER, text(9)]
