"""What users of other filters reported, by the step `filter`. The inputs are ours."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.data.filter_rules import RULES
from runner.spec.data_steps import Filter
from runner.worker.texts.filter_and_join import filter_shards
from runner.worker.texts.reports import SUMS

SPACES = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))


class Case(NamedTuple):
    """A document, what is configured, and why it is left out; empty if it passes."""

    config: Any  # a rule by its name, or the configuration
    text: str
    left_out: str = ""


CASES = {
    # Duplicates are what occurred before; nothing occurs in a document without words
    "huggingface/datatrove#273": Case(
        "repetition/lines", "\n\n\n".join(f"Line {n} of the report." for n in range(9))
    ),
    "huggingface/datatrove#273, paragraphs": Case(
        "repetition/paragraphs", "\n\n\n\n".join(f"Part {n} of the report." for n in range(9))
    ),
    "huggingface/datatrove#22": Case("repetition", "Hello"),
    "allenai/dolma#148": Case("repetition", " "),
    "danish-foundation-models/site#209": Case("gopher", "\n \n", "gopher/words"),
    "data-prep-kit/data-prep-kit#1423": Case({"rules": list(RULES)}, "\t", "gopher/words"),
    "data-prep-kit/data-prep-kit#1393": Case("c4", "\n", "c4/lines"),
    "civictechdc/cib-mango-tree#241": Case(
        "repetition", "긴급 긴급 긴급 긴급 긴급 긴급", "repetition/top_2_gram"
    ),
    # Letters and words are those of all scripts, and of all kinds of white space
    "huggingface/datatrove#202": Case("gopher/letters", "渡轮 每天 三班 出发 " * 20),
    "datajuicer/data-juicer#267": Case("gopher/letters", "フェリー は 每天 出发 3 " * 20),
    "karpathy/minbpe#73": Case("gopher/word_length", "लड़का रोज़ सुबह स्कूल जाता " * 20),
    "gagolews/stringi#377": Case("gopher/words", "".join(f"one{one}two " for one in SPACES * 2)),
    # The numbers of the papers, and on which side of them a document passes
    "huggingface/datatrove#289": Case(
        "gopher/letters", "1 2 3 4 5 6 7 words " * 20, "gopher/letters"
    ),
    "huggingface/datatrove#289, 80 %": Case("gopher/letters", "1 of these five words " * 20),
    "EleutherAI/dps#4": Case("gopher/symbols", "word " * 90 + "# " * 10),
    "EleutherAI/dps#4, more": Case("gopher/symbols", "word " * 89 + "# " * 11, "gopher/symbols"),
    "danish-foundation-models/site#40": Case(
        "gopher/stop_words", "the ferry, the river, the end " * 20, "gopher/stop_words"
    ),
    "danish-foundation-models/site#40, two": Case("gopher/stop_words", "THE ferry (of course)"),
    "huggingface/datatrove#26": Case(
        "gopher/bullets", "\n".join(f"  - item {n}" for n in range(9)), "gopher/bullets"
    ),
    # C4's rules, each by itself
    "allenai/dolma#162": Case("c4/sentences", "First one. Second one! Third one?"),
    "redpen-cc/redpen#98": Case(
        "c4/sentences", "Is this Tokyo? No it is New York.", "c4/sentences"
    ),
    "huggingface/datatrove#232": Case("c4/lines", "One sentence of this page is enough."),
    "erew123/alltalk_tts#190": Case("c4/lines", "渡轮每天三班。\n早上九点出发！", "c4/lines"),
    "sergeche/emmet-sublime#348": Case("c4/lorem_ipsum", "Lorem Ipsum", "c4/lorem_ipsum"),
    # What is configured counts, and the report says what each rule left out
    "bigscience-workshop/data-preparation#42": Case({"least_characters": 1}, "A ferry."),
    "bigscience-workshop/data-preparation#42, more": Case(
        {"least_characters": 100}, "A ferry.", "shorter than least_characters, 100"
    ),
    "NVIDIA-NeMo/Curator#1413": Case(
        {"rules": ["repetition", "gopher/words"]},
        "A short page of seven different words",
        "gopher/words: it has fewer than 50 words, or more than 100,000",
    ),
}


@pytest.mark.parametrize("report", CASES)
def test_a_rule_leaves_out_what_its_paper_says(report: str, tmp_path: Path) -> None:
    case = CASES[report]
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"text": case.text}) + "\n")
    keys = {"rules": [case.config]} if isinstance(case.config, str) else case.config
    (out := tmp_path / "out").mkdir()
    filter_shards(Filter(**keys).model_dump(mode="json"), {"shards": {"train": path}}, out)
    kept = [json.loads(line)["text"] for line in (out / "train.jsonl").open()]
    reasons = list(json.loads((out / SUMS).read_bytes())["left_out"])
    if case.left_out:
        assert (kept, [reason.startswith(case.left_out) for reason in reasons]) == ([], [True])
    else:
        assert (kept, reasons) == ([case.text], [])
