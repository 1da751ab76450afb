"""What users of other filters reported, by the rules of the step `filter`."""

import pytest

from engine.data.filter_rules import judged

# {report: (rule, text, whether it passes)}
CASES = {
    "huggingface/datatrove#273": (
        "repetition/lines",
        "\n\n\n".join(f"Line {n} of the report." for n in range(9)),
        True,
    ),
    "huggingface/datatrove#273, paragraphs": (
        "repetition/paragraphs",
        "\n\n\n\n".join(f"Part {n} of the report." for n in range(9)),
        True,
    ),
    "huggingface/datatrove#202": ("gopher/letters", "渡轮 每天 三班 出发 " * 20, True),
    "huggingface/datatrove#289": ("gopher/letters", "1 2 3 4 5 6 7 words " * 20, False),
    "allenai/dolma#162": ("c4/sentences", "First one. Second one! Third one?", True),
    "karpathy/minbpe#73": ("gopher/word_length", "लड़का रोज़ सुबह स्कूल जाता " * 20, True),
}


@pytest.mark.parametrize("report", CASES)
def test_a_rule_leaves_out_what_its_paper_says(report: str) -> None:
    rule, text, passes = CASES[report]
    assert (judged([rule], text).reason is None) == passes
