"""The mask of the assistant's tokens is that of `transformers`, for templates of many shapes."""

import json
import random

import numpy as np
import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from engine.data.chat_template import rendered
from engine.data.chat_templates import TEMPLATES
from engine.data.conversations import conversations, encoded
from engine.data.tokenize import Tokenizer, byte_tokenizer, train_bpe

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "</s>", "[INST]"]
CHAT = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "  Which colour has the sky? "},
    {"role": "assistant", "content": "Blue,\n\nor grey. "},
    {"role": "user", "content": "Blue, or grey?"},
    {"role": "assistant", "content": "Grün – 🙂!"},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": ""},
]
CALL = {"function": {"name": "look", "arguments": {"where": "up", "b": [1], "a": "ü"}}}


def bpe() -> Tokenizer:
    learned = train_bpe([json.dumps(CHAT, ensure_ascii=False) * 3, "assistant\n\nBlue user\n"], 400)
    with_special = tokenizers.Tokenizer.from_str(learned.definition)
    with_special.add_special_tokens(SPECIAL)
    return Tokenizer(with_special.to_str(), end_of_document=0)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tokenizer", [byte_tokenizer, bpe])
def test_the_mask_is_that_of_transformers(name: str, tokenizer: object) -> None:
    ours = tokenizer()
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(ours.definition), bos_token=None
    )
    messages = [dict(one) for one in CHAT]
    if name in ("chatml", "llama3"):
        messages[2]["tool_calls"] = [CALL, CALL]
        messages[3]["role"] = "tool"
    found = theirs.apply_chat_template(
        messages,
        chat_template=TEMPLATES[name],
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    [one] = conversations(json.dumps({"messages": messages}).encode(), "it")
    said = rendered(TEMPLATES[name], one.messages, special=ours.special)
    ids, labels = encoded(one, said, ours, ())
    assert ids.tolist() == found["input_ids"]
    assert (labels > 0).astype(int).tolist() == found["assistant_masks"]
    assert 0 < np.count_nonzero(labels) < len(labels)


# As Qwen3's and others': what the assistant thought is left out of all but the last turn, the
# first message is dropped, or an answer is written twice.
SHAPES = {
    "thoughts": "{{ m.content if loop.last else m.content.split('</think>')[-1] | trim }}",
    "dropped": "{{ m.content if loop.index > 2 else '' }}",
    "twice": "{{ m.content }}{% endgeneration %} - {% generation %}{{ m.content | upper }}",
}
WRITTEN = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- if m.role == 'assistant' %}"
    "{%- generation %}SHAPE{%- endgeneration %}{%- else %}"
    "{{- '' if loop.first and messages | length > 3 else m.content | trim }}{%- endif %}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trims", [False, True])
def test_whoever_repeats_whatever_the_template_changes_the_mask_is_that_of_transformers(
    shape: str, trims: bool
) -> None:
    template, plain = WRITTEN.replace("SHAPE", SHAPES[shape]), bpe()
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(plain.definition), bos_token=None
    )
    trimming = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    post = {"post_processor": {**trimming, "use_regex": True} if trims else None}
    ours = Tokenizer(json.dumps(json.loads(plain.definition) | post), end_of_document=0)
    chance = random.Random(shape)
    for _ in range(60):
        said = ["Blue", " grey ", "<think>Blue</think>grey", "Blue or grey", "assistant", "", "12"]
        messages = [
            {"role": ("user", "assistant")[n % 2], "content": chance.choice(said)}
            for n in range(chance.choice([2, 4, 5, 6]))
        ]
        found = theirs.apply_chat_template(
            messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True
        )
        [one] = conversations(json.dumps({"messages": messages}).encode(), "it")
        ids, labels = encoded(one, rendered(template, one.messages, special=ours.special), ours, ())
        assert ids.tolist() == found["input_ids"]
        assert (labels > 0).astype(int).tolist() == found["assistant_masks"], messages
