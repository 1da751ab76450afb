"""`python -m runner.worker.models_child`: does for `regatta export`, `import` and `chat`
(`runner.cli.models`) what needs JAX. A JSON object on the first line of stdin says what; each
answer is a line of JSON on stdout, {"error": …} if it cannot be. For `chat`, each further line of
stdin is a question."""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.data.chat_template import BadTemplate
from engine.data.tokenize import BadTokenizer, Tokenizer
from engine.model.generation import Prompt, Sampling
from engine.training import pretrained
from engine.training.architectures import CannotExchange
from runner.isolation import bubblewrap
from runner.lib import untrusted_files
from runner.lib.own_code_errors import BadOwnCode
from runner.schema.devices import Kind
from runner.worker.model_client import Asker
from runner.worker.models import chat, exchange, model_card, trained
from runner.worker.scores.answers import answered
from runner.worker.scores.generate import ended
from runner.worker.step_process import Job

ERRORS = (
    *(CannotExchange, BadOwnCode, BadTemplate, BadTokenizer, untrusted_files.Refused),
    *(bubblewrap.CannotIsolate, OSError),
)


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    try:
        {"export": _export, "import": _import, "chat": _chat}[asked["what"]](asked)
    except ERRORS as error:
        _say(error=" ".join(str(error).split()))


def _say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _folder(path: str | None) -> Path | None:
    return None if path is None else Path(path)


def _export(asked: Mapping[str, Any]) -> None:
    folder, target = Path(asked["model"]), Path(asked["target"])
    tokenizer = exchange.tokenizer_of(folder, _folder(asked["stores"]))
    scores = model_card.scores_in(map(Path, asked["scores"]))
    exchange.export_one(asked["config"], asked["label"], folder, tokenizer, scores, target)
    _say(files=sorted(path.name for path in target.iterdir()))


def _import(asked: Mapping[str, Any]) -> None:
    """Read all of it, so that what the store gets can be used."""
    folder = Path(asked["folder"])
    config, params = pretrained.read(folder, None)
    tokenizer = pretrained.read_tokenizer(folder)
    exchange.chat_template_of(folder)
    _say(
        parameters=sum(array.size for array in _arrays(params)),
        layers=config.num_layers,
        context=config.seq_len,
        tokenizer=tokenizer is not None,
    )


def _arrays(tree: Any) -> list[np.ndarray]:
    if not isinstance(tree, dict):
        return [tree]
    return [array for inner in tree.values() for array in _arrays(inner)]


# ── chat ─────────────────────────────────────────────────────────────────────────────────────


def _chat(asked: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="regatta-chat-") as place:
        folder, ask = Path(asked["model"]), None
        if asked["exported"]:
            folder, source = Path(place, "model"), folder
            folder.mkdir()
            exchange.take_in(source, folder, None)
        if asked["own"]:
            ask = _asker(asked["own"], place)
        this = ask.models[""] if ask else trained.planned(folder)
        tokenizer = exchange.tokenizer_of(folder, _folder(asked["stores"]))
        talk = chat.of(folder)
        _say(ready=True, context=int(this.config["seq_len"]), chats=talk is not None)
        messages = list[dict[str, str]]()
        for line in sys.stdin:
            question = json.loads(line)
            _say(**_answer(question, asked, this, folder, tokenizer, ask, talk, messages))


def _asker(own: Mapping[str, Any], place: str) -> Asker:
    """For a model whose code runs only in a box."""
    return Asker(
        Job(
            function="",
            config={},
            inputs={},
            out="",
            scratch=place,
            code=own["code"],
            devices=Kind.of_json(own["devices"]),
            own=(own["model"],),
            models={"": (own["config"], own["model"])},
            isolation="bubblewrap",
        )
    )


def _answer(
    question: Mapping[str, Any],
    asked: Mapping[str, Any],
    this: trained.Planned,
    folder: Path,
    tokenizer: Tokenizer,
    ask: Any,  # an Asker, for an own model
    talk: chat.Chat | None,
    messages: list[dict[str, str]],
) -> dict[str, Any]:
    """The answer to a question, which is added to the conversation; the completion of its text if
    the model has no chat template. As many tokens as are asked for, or as the context has room
    for."""
    if talk:
        messages.append({"role": "user", "content": question["text"]})
        try:
            _, ids = talk.prompt(messages, tokenizer)
        except BadTemplate as error:
            messages.clear()
            return {"error": str(error)}
    else:
        [ids] = tokenizer.encode_batch([question["text"]])
    context = int(this.config["seq_len"])
    count = min(asked["tokens"], context - len(ids))
    if len(ids) == 0 or count < 1:
        words = f"has {len(ids):,} tokens, and the model's context is {context:,}"
        if len(messages) > 1:
            messages.clear()
            return {"error": f"the conversation {words}; what you write next begins a new one"}
        messages.clear()
        return {"error": f"what you wrote {words}; write less" if len(ids) else "write something"}
    sampling = Sampling(temperature=asked["temperature"])
    prompt = Prompt(np.asarray(ids, np.int32), asked["seed"], question["number"])
    [made], _ = answered(
        this, folder, {}, ask, lambda model: model.generate([prompt], count, sampling)
    )
    said = ended(tokenizer, made, [talk.end] if talk and talk.end else [])
    text = said["completion"].strip() if talk else said["completion"]
    if talk:
        messages.append({"role": "assistant", "content": text})
    return {"text": text, "ended": said["ended"]}


if __name__ == "__main__":
    main()
