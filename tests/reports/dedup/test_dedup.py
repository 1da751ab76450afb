"""Texts that users of other deduplicators and tokenizers reported, by the step `dedup`."""

import json
from pathlib import Path

import pytest

from engine.data.documents import whole_documents
from runner.spec.duplicate_steps import Dedup
from runner.worker.texts import dedup

VERBS = ["जा", "खा", "पी", "पढ़", "लिख", "सो", "देख", "सुन", "बोल", "चल", "खेल", "हँस"]
WHO = (("लड़का", "ता है"), ("लड़की", "ती है"), ("लड़के", "ते हैं"))
HINDI = [
    f"{who} रोज़ सुबह {verb}{end} और शाम को फिर {verb}{end} क्योंकि {who} हर दिन {verb}{end}"
    for verb in VERBS
    for who, end in WHO
]
ROADS = [
    f"Farm to Market Road {number} (FM {number}) is located in {county} County."
    for number, county in ((1506, "Lamar"), (1507, "Leon"), (1508, "Rusk"), (1514, "San Jacinto"))
]
QUOTES = [
    "世界经济史是一部基于假象的连续剧。要获得财富，做法就是认清其假象，投入其中，然后退出游戏。",
    "世界经济史是一部基于假象的连续剧。要想获得财富，做法就是认清其假象，投入其中，再退出游戏。",
    "今天的渡轮早上八点从港口出发，晚上九点以前回到岛上，请各位旅客带好自己的行李和孩子。",
]


def vowels(words: str, marks: str) -> list[str]:
    """The same consonants with other vowel signs."""
    return [" ".join(f"{letter}{mark}" for letter in words.split()) for mark in marks]


# {report: (texts, how many are kept)}
CASES: dict[str, tuple[list[str], int]] = {
    "ChenghaoMou/text-dedup#90": (HINDI, 36),
    "scikit-learn/scikit-learn#30935": (vowels("ত ম ক ল", "\u09be\u09bf\u09c1\u09c7"), 4),
    "RasaHQ/rasa#5998": (vowels("త మ క ల", "\u0c3e\u0c3f\u0c41\u0c46"), 4),
    "karpathy/minbpe#73": (vowels("ක ම ල", "\u0dcf\u0dd2\u0dd4"), 3),
    "openai/tiktoken#292": (vowels("ك ت ب", "\u064e\u0650\u064f"), 3),
    "CIRISAI/CIRISAgent#953": (vowels("ச ல வ", "\u0bbe\u0bbf\u0bc1"), 3),
    "Bookworm-project/BookwormDB#123": (["मे है नही", "म ह नह"], 2),
    "mrabarnett/mrab-regex#85": (["अन्\u200dन है यहाँ", "अन् न है यहाँ"], 2),
    "ChenghaoMou/text-dedup#17": (ROADS, 4),
    "ChenghaoMou/text-dedup#103": (QUOTES, 3),
    "OpenDCAI/DataFlow#526": (["cat", "dog", "cat", "猫", "犬"], 4),
    "datajuicer/data-juicer#1051": (["…", "!!", "… "], 2),
    "huggingface/datatrove#225": (["one two three four"] * 3, 1),
    "EleutherAI/dps#64": (["港のフェリーは毎日三回", "港のバスは毎日五回出る"], 2),
}


@pytest.mark.parametrize("report", CASES)
def test_only_texts_that_resemble_each_other_are_left_out(tmp_path: Path, report: str) -> None:
    texts, right = CASES[report]
    (text := tmp_path / "text").mkdir()
    lines = [json.dumps({"id": str(at), "text": one}) for at, one in enumerate(texts)]
    (text / "train.jsonl").write_text("\n".join(lines))
    (text / "validation.jsonl").write_text('{"id": "held", "text": "something else is held out"}')
    (out := tmp_path / "out").mkdir()
    dedup.deduplicate(Dedup().model_dump(), {"text": text}, out)
    assert len(list(whole_documents(out / "train.jsonl"))) == right
