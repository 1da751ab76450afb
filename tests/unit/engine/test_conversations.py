"""Conversations as text and labels: what is refused, and which token has which label."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.chat_template import BadTemplate, check, end_of_turn, rendered, with_tokens
from engine.data.chat_templates import CHATML, LLAMA3, TEMPLATES
from engine.data.conversations import LABELS, SPOKEN, conversations, encoded, of_characters
from engine.data.lab_texts import BadText
from engine.data.packing import PackedRows
from engine.data.scored_windows import validation_windows
from engine.data.token_store import TokenStore
from engine.data.tokenize import byte_tokenizer

TRACE = [
    {"role": "system", "content": "Use bash."},
    {"role": "user", "content": "Mend it."},
    {"role": "assistant", "content": "I look.\n```bash\nls\n```"},
    {"role": "user", "content": "a.py"},
    {"role": "assistant", "content": "I change it.\n```diff\n-x\n+y\n```\n```bash\ncat a.py\n```"},
    {"role": "user", "content": "y"},
    {"role": "user", "content": "2 tests passed", "label": "outcome"},
    {"role": "assistant", "content": "It is mended."},
]  # SWE-ZERO's shape
CALLS = [
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "I add.",
     "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "It is 4."},
]  # OpenAI's shape  # fmt: skip
ALL = LABELS[1:]
# Jinja parses it, and Python does not compile what Jinja makes of it.
NESTED = "{% for a in [1] %}" * 30 + "x" + "{% endfor %}" * 30


def parts(messages: list[dict], labels: tuple[str, ...] = ALL, template: str = CHATML) -> dict:
    """{label: what has it}."""
    [one] = conversations(json.dumps({"messages": messages}).encode(), "it")
    said = rendered(template, one.messages)
    codes = of_characters(one, said, labels)
    return {
        label: "".join(np.array(list(said.text))[codes == number])
        for number, label in enumerate(LABELS, 1)
        if (codes == number).any()
    }


@pytest.mark.parametrize("template", [CHATML, LLAMA3])
def test_the_parts_of_a_trace_in_the_shape_of_swe_zero(template: str) -> None:
    end = "<|im_end|>" if template == CHATML else "<|eot_id|>"
    assert parts(TRACE, template=template) == {
        "assistant": f"I look.\n{end}I change it.\n\n{end}",
        "tool_call": "```bash\nls\n``````bash\ncat a.py\n```",
        "observation": "a.pyy",
        "patch": "```diff\n-x\n+y\n```",
        "outcome": "2 tests passed",
        "final": f"It is mended.{end}",
    }


@pytest.mark.parametrize("labels", [(), ALL])
def test_what_is_trained_on_without_asking_is_what_the_assistant_says(labels) -> None:
    found = parts(TRACE, labels=labels)
    trained = "".join(text for label, text in found.items() if label in SPOKEN)
    said = [one["content"] for one in TRACE if one["role"] == "assistant"]
    assert sorted(trained) == sorted("".join(f"{content}<|im_end|>" for content in said))


def test_the_parts_of_a_trace_with_tool_calls_in_the_shape_of_openai() -> None:
    call = '\n<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call><|im_end|>'
    assert parts(CALLS) == {
        "assistant": "I add.", "tool_call": call, "observation": "4",
        "final": "It is 4.<|im_end|>",
    }  # fmt: skip
    silent = [{**CALLS[1], "content": None}, *CALLS[2:]]
    assert parts(silent)["tool_call"] == call[1:]
    assert "assistant" not in parts(silent)


def test_a_block_that_never_closes_has_no_label_however_many_open() -> None:
    said = "```bash\n" * 200_000
    found = parts([{"role": "user", "content": "?"}, {"role": "assistant", "content": said}])
    assert found.keys() == {"assistant"}


def test_labels_that_nobody_asked_for_are_the_assistants_words() -> None:
    found = parts(TRACE, ())
    assert list(found) == ["assistant"]
    assert "cat a.py" in found["assistant"]
    assert "a.py" not in found["assistant"].replace("cat a.py", "")


def test_what_a_user_repeats_is_not_the_assistants() -> None:
    echo = [
        {"role": "user", "content": "It is 4."},
        {"role": "assistant", "content": "It is 4."},
        {"role": "user", "content": "It is 4."},
    ]
    assert parts(echo) == {"assistant": "It is 4.<|im_end|>"}


@given(st.lists(st.text(st.characters(exclude_categories=("Cs", "Cn"))), min_size=1, max_size=5))
def test_the_labels_of_bytes_cover_just_what_the_assistant_says(contents: list[str]) -> None:
    messages = [
        {"role": "assistant" if n % 2 else "user", "content": x} for n, x in enumerate(contents)
    ]
    [one] = conversations(json.dumps({"messages": messages}).encode(), "it")
    said = rendered(CHATML, one.messages)
    ids, labels = encoded(one, said, byte_tokenizer(), ())
    assert bytes(ids.tolist()).decode() == said.text
    spoken = "".join(said.text[begin:end] for begin, end in said.spans)
    assert bytes(ids[labels > 0].tolist()).decode() == spoken


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% generation %}{{ messages }", "is not Jinja"),
        ("{% generation %}{% generation %}a{% endgeneration %}{% endgeneration %}", "inside each"),
        ("{% generation %}{{ ''.__class__.__mro__ }}{% endgeneration %}", "reaches too far"),
        ("{% generation %}{{ messages.append(1) }}{% endgeneration %}", "reaches too far"),
        ("{% generation %}{{ 9 ** 9 ** 9 }}{% endgeneration %}", "may not compute **"),
        ("{% generation %}{{ raise_exception('no') }}{% endgeneration %}", "fails: no"),
        ("{% generation %}{{ messages[9].content.strip() }}{% endgeneration %}", "fails"),
        ("{% generation %}{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}"
         "{% endgeneration %}", "writes more than 4,000,000 characters"),
        ("{% generation %}{% for i in range(999999) %}{% endfor %}{% endgeneration %}", "fails"),
        ("{% include 'x' %}{% generation %}{% endgeneration %}", "fails"),
        ("{{" + "(" * 5000, "nested too deeply"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_used_is_said_in_words(template: str, words: str) -> None:
    with pytest.raises(BadTemplate) as it:
        rendered(template, CALLS)
    assert words in str(it.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "it, line 2 is not JSON"),
        ("[]", "has no list of messages"),
        ('{"messages": []}', "has no list of messages"),
        ('{"messages": [{"role": "bot", "content": "a"}]}', "message 0 has the role 'bot'"),
        ('{"messages": [{"role": "user"}]}', "message 0 has nothing as its content"),
        ('{"messages": [{"role": "user", "content": ["a"]}]}', "has list as its content"),
        ('{"messages": [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": '
         '"f", "arguments": {}}}]}]}', "only the assistant calls"),
        ('{"messages": [{"role": "assistant", "content": "a", "tool_calls": [1]}]}', "none"),
        ('{"messages": [{"role": "user", "content": "a", "label": "b"}]}', "the label 'b'"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "surrogate"),
        ('{"messages": [{"role": "user", "content": "a"}], "tools": 1}', "tools that are no list"),
    ],
)  # fmt: skip
def test_a_row_that_is_no_conversation_is_said_with_its_line(line: str, words: str) -> None:
    good = '{"messages": [{"role": "user", "content": "a"}]}'
    with pytest.raises(BadText) as it:
        list(conversations(f"{good}\n{line}\n".encode(), "it"))
    assert words in str(it.value)
    assert "it, line 2" in str(it.value)


def test_reading_a_template_computes_nothing() -> None:
    check("{% generation %}{{ 'a' * 9999999999999 }}{% endgeneration %}")


def test_a_template_that_marks_nothing_is_not_trained_with() -> None:
    with pytest.raises(BadTemplate, match=r"has no \{% generation %\} tag"):
        check("{{ messages }}")
    assert rendered("{{ messages[0].content }}", CALLS[:1]).spans == [], "one may talk by it"


def test_a_template_knows_the_texts_of_the_special_tokens_that_it_names() -> None:
    texts = {"bos_token": "<s>", "eos_token": '"ß\\🙂\n%}', "pad_token": "<pad>"}
    template = "\n{{ bos_token + messages[0].role + eos_token }}"
    known = with_tokens(template, texts)
    assert rendered(known, CALLS[:1]).text == "\n<s>user" + texts["eos_token"]
    assert with_tokens(known, {"bos_token": "again"}) == known
    assert with_tokens("{{ messages }}", texts) == "{{ messages }}"


ENDS = {
    "chatml": ("<|im_end|>", "<|im_start|>assistant\n"),
    "llama3": ("<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "gemma": ("<end_of_turn>", "<start_of_turn>model\n"),
    "mistral": ("</s>", "[INST] a [/INST]"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt_ends_where_the_answer_begins_and_a_turn_as_the_template_says(name: str) -> None:
    end, begun = ENDS[name]
    assert end_of_turn(partial(rendered, TEMPLATES[name])) == end
    asked = [{"role": "user", "content": "a"}]
    prompt = rendered(TEMPLATES[name], asked, add_generation_prompt=True).text
    assert prompt.endswith(begun)
    answered = rendered(TEMPLATES[name], [*asked, {"role": "assistant", "content": "b"}])
    assert answered.text.startswith(prompt)
    assert answered.text[len(prompt) :].strip() == f"b{end}"


@pytest.mark.parametrize(
    ("template", "end"),
    [
        ("{% for m in messages %}{{ m.content }}<e>\n{% endfor %}", "<e>"),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{{ '' }}{% endfor %}", None),
        ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}.{% endfor %}",
         None),
        ("nothing of it", None),
    ],
)  # fmt: skip
def test_other_templates_end_turns_as_they_write_them(template: str, end: str | None) -> None:
    assert end_of_turn(partial(rendered, template)) == end


def test_no_template_of_the_lab_writes_tool_calls_it_has_no_place_for() -> None:
    for name in ("gemma", "mistral"):
        with pytest.raises(BadTemplate, match="has no tool calls; use chatml or llama3"):
            rendered(TEMPLATES[name], CALLS)


def stored() -> TokenStore:
    """Three conversations, of 4, 6 and 3 tokens."""
    tokens = np.arange(13, dtype=np.uint8)
    scored = np.isin(tokens, [2, 3, 7, 8, 9])
    store = TokenStore.of(tokens, offsets=np.array([0, 4, 10, 13]))
    return TokenStore(store.manifest, store.tokens, store.offsets, scored=scored)


def test_rows_of_conversations_have_only_scored_targets_packed_or_alone() -> None:
    packed, alone = PackedRows(stored(), 8), PackedRows(stored(), 8, alone=True)
    for rows, count in ((packed, 2), (alone, 3)):
        batch = rows.read(np.arange(len(rows)))
        assert len(rows) == count
        assert sorted(batch.targets_BS[batch.targets_BS >= 0]) == [2, 3, 7, 8, 9]
        assert sorted(batch.inputs_BS[batch.targets_BS >= 0]) == [1, 2, 6, 7, 8]
    assert packed.read(np.array([0])).segments_BS is not None
    assert batch.segments_BS is None


def test_conversations_are_scored_from_their_beginning_up_to_the_count() -> None:
    windows, mask, _ = validation_windows(stored(), 8, 4)
    assert windows.tolist() == [[0, 1, 2, 3, 0, 0, 0, 0, 0], [4, 5, 6, 7, 8, 9, 0, 0, 0]]
    assert windows[:, 1:][mask].tolist() == [2, 3, 7, 8]
    assert validation_windows(stored(), 8, 99)[1].sum() == 5


# ── The same text in each run ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ messages|map(attribute='role') }}", "['user']"),
        ("{{ messages|map(attribute='role')|join }}", "user"),
        ("{{ [1, 2]|reverse }}{{ 'ab'|batch(1) }}", "[2, 1][['a'], ['b']]"),
        ("{{ messages[0].items() }}", "dict_items([('role', 'user'), ('content', 'x')])"),
        ("{{ namespace(a=1) }}{% macro f() %}m{% endmacro %}{{ f }}{{ f() }}", None),
        ("{% block a %}b{% endblock %}{{ self.a() }}{{ 'a-b'.split('-')|join(',') }}", "bba,b"),
        ("{{ range(3)|list }}{{ '%s'|format('x'.upper()) }}{{ ''.join is callable }}", None),
    ],
)
def test_a_template_writes_the_same_text_in_each_run(template: str, text: str | None) -> None:
    found = rendered(template, [{"role": "user", "content": "x"}]).text
    assert found == text or (text is None and " at 0x" not in found)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("[1, 2, 3]|random", "draws by chance"),
        ("[[1, 2, 3]]|map('random')|list", "draws by chance"),
        ("lipsum()", "'lipsum' is undefined"),
        ("cycler('a')", "'cycler' is undefined"),
        ("joiner() ~ ''", "'joiner' is undefined"),
        *((expression, "writes a function") for expression in (
            "''.join", "''['join']", "''|attr('join')", "['']|map('attr', 'join')", "[''.join]",
            "'%s' % ''.join", "'{}'.format(''.join)", "'{0.join}'.format('')", "''.join|string",
            "''.join|pprint", "'a'.format", "raise_exception", "range", "''.join ~ ''",
            "{'a': ''.upper}", "namespace(x=''.join)",
        )),
    ],
)  # fmt: skip
def test_what_differs_between_runs_is_refused(expression: str, words: str) -> None:
    with pytest.raises(BadTemplate, match=words):
        rendered(f"{{{{ {expression} }}}}", [{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (NESTED, "cannot be compiled: too many statically nested blocks"),
        ("{{ 'x'|nofilter }}", "No filter named 'nofilter'"),
        ("{{ " + "9" * 5000 + " }}", "is not Jinja: Exceeds the limit"),
    ],
)
def test_a_template_that_cannot_be_compiled_is_told_as_that(template: str, words: str) -> None:
    with pytest.raises(BadTemplate, match=words):
        rendered(template, [{"role": "user", "content": "x"}])
