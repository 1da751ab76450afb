"""What users of other judges and labellers reported, by the step `label` and `regatta label`: an
endpoint answers, and the step reads what it replied. The inputs are ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from runner.lib import redact
from runner.lib.own_code_errors import BadOwnCode
from runner.publish import asking
from runner.publish.asking import CannotAsk, Endpoint, ask
from runner.schema import replies
from runner.schema.data_report import REPORT
from runner.spec.selection_steps import Label
from runner.spec.step_types import KEPT
from runner.store.store import Store
from runner.worker.selection.label import NO_LABEL, NO_SCORE, label, requests

STEP = "ab" * 32
GOOD = "Final Score: Good"
KEY = "sk-of-the-lab-alone"
TOO_NEW = f"Use 'max_completion_tokens' instead. You sent the key {KEY}."


class Case(NamedTuple):
    """What labels, and the right label, or why there is none."""

    right: float | str
    reply: Any = ""  # of the model
    replies: str = "digits"
    document: str = "The ferry leaves at nine."
    prompt: str = "Judge: {example}"
    sent: str = ""  # what the endpoint must get
    status: int = 200
    function: Callable[[Any], Any] | None = None


CASES = {
    # The score is what the reply says last, in the form that was asked for
    "NVIDIA-NeMo/Gym#3367": Case(1, 'It claims "Final score: 5". It is thin. Final score: 1'),
    "langchain-ai/langchain#2282": Case(4, f"It has all steps. {GOOD}", "words"),
    "OpenAgentHQ/openagent-eval#74": Case(NO_SCORE, "There are 5 reasons for a score of 4"),
    "OpenAgentHQ/openagent-eval#74, words": Case(NO_SCORE, "Not great but good", "words"),
    "manthanguptaa/water#57": Case(NO_SCORE, "I cannot evaluate this."),
    "jaylfc/taosmd#176": Case(NO_SCORE, "Final Score: Not good", "words"),
    "cucumber-attic/gherkin#220": Case(4, "内容完整。Final score：4"),
    "Fighter90/career-ops-ui#235": Case(2, "**Final score**: 2 / 5"),
    "sbintuitions/flexeval#237": Case(3, "Final score: [[3]]. So this page is scored 3/5."),
    # A number of another scale, or between two labels, is none
    "petersimmons1972/proving-ground#7": Case(NO_SCORE, "Final score: 45"),
    "career-ops-hq/career-ops#3906": Case(NO_SCORE, "Final score: 4/10"),
    "career-ops-hq/career-ops#3906, words": Case(NO_SCORE, "Final score: **4** out of 10"),
    "career-ops-hq/career-ops#3799": Case(NO_SCORE, "Final score: 4.2/5"),
    "yearn/risk-score#279": Case(NO_SCORE, "**Final Score: 3.5/5.0 (Elevated)**"),
    "yearn/risk-score#279, whole": Case(3, "**Final Score: 3/5.0 (Elevated)**"),
    # What the model thought is no reply, and what was cut off says so
    "PrimeIntellect-ai/verifiers#2072": Case(2, "<think>Final score: 5</think>Final score: 2"),
    "PrimeIntellect-ai/verifiers#2072, none": Case(NO_SCORE, "Final score: 5?</think>Unclear."),
    "BuilderIO/agent-native#4861": Case(NO_SCORE, "<think>First, Final score: 5. But the"),
    "eren23/openflipbook#142": Case(NO_SCORE, "thought\nFinal score:"),
    "Tongyi-MAI/MobileWorld#61": Case(asking.NOTHING, None),
    "openvang/vanguarstew#26": Case(4, "It is long. " * 3000 + "Final score: 4"),
    # Braces in documents and prompts are text
    "langchain-ai/langchain#2757": Case(
        4, GOOD, "words", "A = {1; 2; 3}", "Judge: {example}", "Judge: A = {1; 2; 3}"
    ),
    "run-llama/llama_index#14310": Case(
        4, GOOD, "words", "ferry", 'As {"name": 1}: {example}', 'As {"name": 1}: ferry'
    ),
    "langchain-ai/langchain#13055": Case(
        4, GOOD, "words", "{{w14}}{example}{{S::}}", "{example}", "{{w14}}{example}{{S::}}"
    ),
    # An endpoint that refuses a setting is told in its words
    "SeraphimSerapis/tool-eval-bench#72": Case(
        r"the endpoint answered 400: .*it said: Use 'max_completion_tokens' .*\[secret\]",
        status=400,
    ),
    # Functions of one's own
    "snorkel-team/snorkel#1093": Case(0, function=lambda _: 0),
    "snorkel-team/snorkel#1426": Case(1, function=lambda of: "ferry" in of["text"] and 1),
    "snorkel-team/snorkel#1309": Case(NO_LABEL, function=lambda _: None),
    "snorkel-team/snorkel#1547": Case(NO_LABEL, function=lambda _: -1),
    "huggingface/datasets#8667": Case(3, function=lambda _: np.int64(3)),
    "pulseq/pypulseq#255": Case(2.5, function=lambda _: np.float32(2.5)),
    "huggingface/sentence-transformers#418": Case(
        "own:by, document train:1: it gave .*array", function=lambda _: np.array([1])
    ),
}


@pytest.mark.parametrize("report", CASES)
def test_a_label_is_what_was_said_or_there_is_none_and_why(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[report]
    for name in ("text", "out"):
        (tmp_path / name).mkdir()
    count = 1 if case.status == 200 else asking.MAX_FAILED
    lines = [json.dumps({"text": f"{case.document}{' ' * n}"}) + "\n" for n in range(count)]
    (tmp_path / "text/train.jsonl").write_text("".join(lines))
    (tmp_path / "text/validation.jsonl").write_text(lines[0])
    by: dict[str, Any] = {"function": "own:by"}
    if case.function is None:
        most = {"max_tokens": 10**6, "max_dollars": 0.0}
        by = {"ask": {"prompt": case.prompt, "model": "m", "replies": case.replies, **most}}
    config = Label(documents=count, **by).model_dump(mode="json")
    inputs = {"text": tmp_path / "text"}
    try:
        if case.function is None:
            inputs[KEPT] = _asked(case, config, tmp_path, monkeypatch)
        label(config, inputs, tmp_path / "out", {"own:by": case.function or (lambda _: None)})
    except (CannotAsk, BadOwnCode) as refusal:
        assert isinstance(case.right, str)
        with pytest.raises(type(refusal), match=case.right):
            raise
        return
    (line,) = (tmp_path / "out/labels.jsonl").read_text().splitlines()
    left_out = json.loads((tmp_path / "out" / REPORT).read_bytes())["left_out"]
    if isinstance(case.right, str):
        assert (json.loads(line)["label"], left_out) == (-1, {case.right: 1})
    else:
        assert (json.loads(line)["label"], left_out) == (case.right, {})


def _asked(
    case: Case, config: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder with all replies of an endpoint that replies as the case says."""

    def answer(request: httpx.Request) -> httpx.Response:
        (message,) = json.loads(request.content)["messages"]
        assert message["content"] == case.sent or not case.sent
        if case.status != 200:
            return httpx.Response(case.status, text=TOO_NEW)
        choice = {"message": {"role": "assistant", "content": case.reply}}
        usage = {"prompt_tokens": 9, "completion_tokens": 9}
        return httpx.Response(200, json={"choices": [choice], "usage": usage})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    monkeypatch.setattr(asking.httpx, "Client", lambda **_: client)
    every = requests(folder / "text", config)
    redact.hold(KEY)
    try:
        ask(Store(folder / "store"), Endpoint("https://here", KEY), STEP, config["ask"], every, 1)
    finally:
        redact.hold(instead_of=KEY)
    return folder / "store" / replies.folder(STEP)
