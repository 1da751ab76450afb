"""experiment.yaml: what is read, and what is said about the rest."""

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.config.schema import DataConfig, EvalConfig
from runner.lib import problems as lib_problems
from runner.lib.problems import MAX_PROBLEMS, BadExperiment, Problem
from runner.spec import declaration
from runner.spec.experiment import MAX_RUNS
from runner.spec.graph import Graph
from tests.examples import examples
from tests.scenarios.lab import EXPERIMENT

FILE = "experiments/warm/experiment.yaml"


def parse(text: str) -> Graph:
    return declaration.parse(text, FILE)


def problems(text: str) -> list[tuple[int, str, str]]:
    """Line, field and message of everything that is wrong."""
    with pytest.raises(BadExperiment) as caught:
        parse(text)
    assert all(problem.file == FILE for problem in caught.value.problems)
    assert caught.value.problems
    return [(problem.line, problem.field, problem.message) for problem in caught.value.problems]


def changed(was: str, now: str) -> str:
    assert EXPERIMENT.count(was) == 1
    return EXPERIMENT.replace(was, now)


# ── Good ─────────────────────────────────────────────────────────────────────────────────────


def test_an_experiment_is_resolved_to_the_last_default() -> None:
    graph = parse(EXPERIMENT)
    found = graph.experiment
    assert found.title == "Does a warmer learning rate pay off in 16 steps?"
    assert found.preregistration == 1
    assert found.data == DataConfig(source="text.txt", tokenizer="byte")
    assert found.eval == EvalConfig(tokens=64)
    assert (found.resources.kind, found.resources.count) == ("cpu", 1)
    assert found.seeds == (0, 1, 2)
    assert list(graph.arms) == ["slow", "fast"]
    model, train = graph.arms["fast"].model, graph.arms["fast"].train
    assert model.num_kv_heads == model.num_heads == 2
    assert (model.vocab_size, model.tie_word_embeddings) == (256, False)
    assert (train.learning_rate, train.lr_schedule, train.optimizer) == (0.003, "wsd", "adamw")
    slow = graph.arms["slow"]
    assert slow.model == model
    assert slow.train == train.model_copy(update={"learning_rate": 0.0003})


def test_optional_keys_may_be_left_out() -> None:
    graph = parse(
        "title: t\ndata: {source: stdlib}\nresources: {kind: cpu}\n"
        "model: {hidden_dim: 8, intermediate_dim: 8, num_layers: 1, num_heads: 2, seq_len: 8}\n"
        "train: {train_batch_size: 1, num_train_steps: 1, learning_rate: 1}\n"
    )
    found = graph.experiment
    assert (found.preregistration, found.seeds, list(graph.arms)) == (None, (0,), ["main"])
    assert found.eval.tokens == 16_384


def test_a_number_in_scientific_notation_is_a_number() -> None:
    assert parse(changed("0.0003", "3e-4")).arms == parse(EXPERIMENT).arms


def test_arms_may_be_called_what_yaml_takes_for_something_else() -> None:
    found = parse(changed("  fast: {}", "  1: {}\n  true: {}\n  null: {}\n  on: {}"))
    assert list(found.arms) == ["slow", "1", "true", "null", "on"]


def test_an_arm_may_complete_what_the_experiment_leaves_open() -> None:
    text = changed("hidden_dim: 16, ", "").replace("fast: {}", "fast: {model: {hidden_dim: 16}}")
    text = text.replace("slow: {train", "slow: {model: {hidden_dim: 8}, train")
    found = parse(text)
    assert [of.model.hidden_dim for of in found.arms.values()] == [8, 16]


def test_arms_train_on_as_many_devices_as_they_ask_for_and_all_else_takes_one() -> None:
    nodes = parse(changed("count: 1", "count: 2")).nodes
    assert nodes["train/fast,seed=0"].config["compute"]["mesh"]["data"] == 2
    counts = {node.do: node.resources.count for node in nodes.values()}
    assert counts == {"tokenize": 1, "train": 2, "evaluate": 1}


def test_as_many_runs_as_there_may_be_are_read() -> None:
    seeds = ", ".join(map(str, range(MAX_RUNS // 2)))
    assert len(parse(changed("0, 1, 2", seeds)).experiment.seeds) == MAX_RUNS // 2


def test_the_labs_own_experiments_can_be_read() -> None:
    folders = sorted(path.parent for path in Path("experiments").glob("*/experiment.yaml"))
    assert folders
    for folder in folders:
        assert declaration.load(folder).arms == declaration.load(folder / "experiment.yaml").arms


# ── Bad ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("was", "now", "line", "field", "message"),
    [
        # unknown keys
        ("title:", "titel:", 1, "titel", "unknown key; did you mean `title`?"),
        ("seeds:", "seed:", 8, "seed", "unknown key; did you mean `seeds`?"),
        ("kind: cpu", "kinds: cpu", 7, "resources.kinds", "unknown key; did you mean `kind`?"),
        ("tokenizer", "tokeniser", 3, "data.tokeniser", "unknown key; did you mean `tokenizer`?"),
        ("num_layers", "layers", 4, "model.layers", "unknown key; did you mean `num_layers`?"),
        ("warmup", "xyzzy", 5, "train.xyzzy", "unknown key"),
        ("{tokens: 64}", "{token: 64}", 6, "eval.token", "unknown key; did you mean `tokens`?"),
        ("slow: {train", "slow: {trian", 10, "arms.slow.trian",
         "unknown key; did you mean `train`?"),
        ("slow: {train: {learning_rate", "slow: {train: {learning_rte", 10,
         "arms.slow.train.learning_rte", "unknown key; did you mean `learning_rate`?"),
        ("slow: {train", "slow: {model", 10, "arms.slow.model.learning_rate", "unknown key"),
        # missing keys
        ("data: {source: text.txt, tokenizer: byte}\n", "", 1, "data",
         "is missing; write `"),
        ("source: text.txt, ", "", 3, "data.source", "is missing; write `"),
        ("hidden_dim: 16, ", "", 4, "model.hidden_dim", "is missing; write `"),
        ("learning_rate: 0.003, ", "", 5, "train.learning_rate", "is missing; write `"),
        ("kind: cpu, ", "", 7, "resources.kind", "is missing; write `"),
        # wrong types
        ("title: Does a warmer learning rate pay off in 16 steps?", "title: 5", 1, "title",
         "must be text, not `5`"),
        ("title: Does a warmer learning rate pay off in 16 steps?", "title: [a]", 1, "title",
         "must be text, not a list"),
        ("title: Does a warmer learning rate pay off in 16 steps?", "title:", 1, "title",
         "must be text, not nothing"),
        ("title: Does a warmer learning rate pay off in 16 steps?", 'title: " "', 1, "title",
         "must not be empty"),
        ("title: Does a warmer learning rate pay off in 16 steps?", f"title: {'x' * 201}",
         1, "title", "it should have at most 200 characters, not"),
        ("preregistration: 1", "preregistration: true", 2, "preregistration",
         "must be a whole number, not `true`"),
        ("preregistration: 1", "preregistration: '1'", 2, "preregistration",
         "must be a whole number, not `1`"),
        ("preregistration: 1", "preregistration: 0", 2, "preregistration",
         "it should be greater than or equal to 1, not `0`"),
        ("data: {source: text.txt, tokenizer: byte}", "data: stdlib", 3, "data",
         "must be a mapping of keys to values, not `stdlib`"),
        ("tokenizer: byte", "tokenizer: bpe", 3, "data.tokenizer", "must be `byte`, not `bpe`"),
        ("model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 2, num_heads: 2, seq_len: 32}",
         "model: [1]", 4, "model", "must be a mapping of keys to values, not a list"),
        ("hidden_dim: 16", "hidden_dim: wide", 4, "model.hidden_dim",
         "must be a whole number, not `wide`"),
        ("hidden_dim: 16", "hidden_dim: 16.0", 4, "model.hidden_dim",
         "must be a whole number, not `16.0`"),
        ("hidden_dim: 16", "hidden_dim: true", 4, "model.hidden_dim",
         "must be a whole number, not `true`"),
        ("hidden_dim: 16", "hidden_dim: -16", 4, "model.hidden_dim",
         "it should be greater than 0, not `-16`"),
        ("hidden_dim: 16", "hidden_dim: 99999999999999999999", 4, "model.hidden_dim",
         "it should be less than or equal to 1048576, not `99999999999999999999`"),
        ("hidden_dim: 16", "hidden_dim: {a: 1}", 4, "model.hidden_dim",
         "must be a whole number, not a mapping"),
        ("learning_rate: 0.003", "learning_rate: 1_000", 5, "train.learning_rate",
         "must be a number, not `1_000`"),
        ("learning_rate: 0.003", "learning_rate: 1e999", 5, "train.learning_rate",
         "it should be a finite number, not `inf`"),
        ("learning_rate: 0.003", "learning_rate: 0", 5, "train.learning_rate",
         "it should be greater than 0, not `0`"),
        ("seq_len: 32}", "seq_len: 32, tie_word_embeddings: yes}", 4, "model.tie_word_embeddings",
         "must be true or false, not `yes`"),
        ("{tokens: 64}", "{tokens: many}", 6, "eval.tokens", "must be a whole number, not `many`"),
        ("[0, 1, 2]", "3", 8, "seeds", "must be a list, not `3`"),
        ("[0, 1, 2]", "[0, one]", 8, "seeds.1", "must be a whole number, not `one`"),
        ("[0, 1, 2]", "[0, -1]", 8, "seeds.1", "it should be greater than or equal to 0, not `-1`"),
        ("[0, 1, 2]", "[2147483648]", 8, "seeds.0", "it should be less than 2147483648, not"),
        ("  fast: {}", "  fast:", 11, "arms.fast",
         "must be a mapping of keys to values, not nothing"),
        ("  fast: {}", "  fast: 3", 11, "arms.fast",
         "must be a mapping of keys to values, not `3`"),
        ("  fast: {}", "  fast: {train: 3}", 11, "arms.fast.train",
         "must be a mapping of keys to values, not `3`"),
        # names
        ("  fast:", "  Fast:", 11, "arms.Fast", "`Fast` is not a name of an arm"),
        ("  fast:", "  fast.1:", 11, "arms.fast.1", "`fast.1` is not a name of an arm"),
        ("  fast:", '  "":', 11, "arms.", "`` is not a name of an arm"),
        ("  fast:", '  "a\\nb":', 11, "arms.a b", "`a b` is not a name of an arm"),
        ("  fast:", f"  {'a' * 41}:", 11, f"arms.{'a' * 41}", "is not a name of an arm"),
        ("  fast:", '  "`@grace`":', 11, "arms.ʼ@graceʼ", "`ʼ@graceʼ` is not a name of an arm"),
        # what makes no sense
        ("num_heads: 2", "num_heads: 3", 4, "model.num_heads",
         "num_heads 3 does not divide hidden_dim 16; choose one of 1, 2, 4, 8"),
        ("num_heads: 2", "num_heads: 16", 4, "model.num_heads", "into heads of an odd size"),
        ("seq_len: 32}", "seq_len: 32, num_kv_heads: 3}", 4, "model.num_kv_heads",
         "num_kv_heads 3 does not divide num_heads 2"),
        ("seq_len: 32}", "seq_len: 32, vocab_size: 255}", 4, "model.vocab_size",
         "255 rows are too few"),
        ("fast: {}", "fast: {model: {vocab_size: 5}}", 11, "arms.fast.model.vocab_size",
         "5 rows are too few"),
        ("fast: {}", "fast: {model: {num_heads: 3}}", 11, "arms.fast.model.num_heads",
         "num_heads 3 does not divide hidden_dim 16"),
        ("warmup: 0.1", "warmup: 0.95", 5, "train.decay", "more than the whole run of 16 steps"),
        ("warmup: 0.1", "warmup: 16", 5, "train.warmup", "is the whole run of 16 steps"),
        ("lr_schedule: wsd", "lr_schedule: cosine", 5, "train.decay",
         "goes with lr_schedule wsd only"),
        ("lr_schedule: wsd", "lr_schedule: linaer", 5, "train.lr_schedule",
         "must be `constant`, `linear`, `cosine` or `wsd`, not `linaer`"),
        ("kind: cpu", "kind: gpu", 7, "resources.kind",
         "no devices of kind `gpu`; it has `cpu`, `h100`, `v4`, `v5e`, `v5p`"),
        ("count: 1", "count: 3", 5, "train.train_batch_size", "cannot be spread evenly over data"),
        ("resources:", "compute: {mesh: {data: 2}}\nresources:", 7, "compute.mesh",
         "is a mesh of 2 and there is 1 device"),
        ("fast: {}", "fast: {compute: {dtype: float16}}", 11, "arms.fast.compute.dtype",
         "must be `float32` or `bfloat16`"),
        ("count: 1", "count: 0", 7, "resources.count", "it should be greater than or equal to 1"),
        ("[0, 1, 2]", "[1, 1]", 8, "seeds", "a seed is here twice, and each is one run"),
        ("[0, 1, 2]", f"[{', '.join(map(str, range(129)))}]", 8, "seeds",
         "258 runs are more than the 256 that one experiment may have"),
        ("[0, 1, 2]", "[]", 8, "seeds", "must not be empty"),
    ],
)  # fmt: skip
def test_one_mistake_is_named_with_its_line_and_its_field(
    was: str, now: str, line: int, field: str, message: str
) -> None:
    (found,) = problems(changed(was, now))
    assert found[:2] == (line, field)
    assert message in found[2]


def test_no_arms_at_all_are_one_problem() -> None:
    text = EXPERIMENT.partition("arms:")[0] + "arms: {}\n"
    ((line, field, message),) = problems(text)
    assert (line, field) == (9, "arms")
    assert message.startswith("must not be empty; write `arms: {")


@pytest.mark.parametrize("text", ["5", "words", "- a", "[title]"])
def test_a_declaration_must_be_a_mapping(text: str) -> None:
    ((line, field, message),) = problems(text)
    assert (line, field) == (1, "")
    assert "must be a mapping with keys such as" in message


def test_several_mistakes_are_named_in_the_order_of_their_lines() -> None:
    text = changed("num_layers: 2", "num_layers: two").replace("0.0003", "slow")
    text = text.replace("learning_rate: 0.003", "learning_rate: fast")
    assert [(line, field) for line, field, _ in problems(text)] == [
        (4, "model.num_layers"),
        (5, "train.learning_rate"),
        (10, "arms.slow.train.learning_rate"),
    ]


def test_a_mistake_that_every_arm_inherits_is_said_once() -> None:
    assert len(problems(changed("num_layers: 2", "num_layers: two"))) == 1


def test_a_key_that_is_misspelt_is_not_missing_too() -> None:
    assert len(problems(changed("num_layers", "num_layer"))) == 1


def test_a_misspelt_keys_consequences_are_not_reported() -> None:
    text = changed("learning_rate: 0.003", "learning_rte: 0.003")
    assert [field for _, field, _ in problems(text)] == ["train.learning_rte"]


def test_problems_of_several_arms_are_reported_at_once() -> None:
    text = changed("  fast: {}", "  fast: {model: {num_heads: 3}}\n  other: {train: {beta1: 2}}")
    text = text.replace("0.0003", "slow")
    assert [field for _, field, _ in problems(text)] == [
        "arms.slow.train.learning_rate",
        "arms.fast.model.num_heads",
        "arms.other.train.beta1",
    ]


def test_errors_quote_strangers_briefly_and_without_backticks() -> None:
    ((_, _, message),) = problems(changed("num_layers: 2", 'num_layers: "`' + "x\\n" * 500 + '"'))
    assert message == f"must be a whole number, not `ʼ{'x ' * 29}…`; write `num_layers: 4`"


def test_a_folder_without_a_declaration_and_a_file_that_is_no_text_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "folder" / "experiment.yaml").mkdir(parents=True)
    for name, said in (
        ("none", "none: there is no such file; an experiment is a folder with an"),
        ("png", "png: it cannot be read"),
        ("folder", "folder/experiment.yaml: it cannot be read"),
    ):
        with pytest.raises(BadExperiment, match=said):
            declaration.load(tmp_path / name)


def test_a_problem_reads_as_file_line_and_field() -> None:
    problem = Problem("a/experiment.yaml", 4, "model.num_layer", "unknown key")
    assert str(problem) == "a/experiment.yaml, line 4, `model.num_layer`: unknown key"
    assert str(Problem("f", 1, "", "it is empty")) == "f, line 1: it is empty"


# ── Anything ─────────────────────────────────────────────────────────────────────────────────

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("1" * 999)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
GOOD = yaml.safe_load(EXPERIMENT)
PATHS = [(key,) for key in GOOD] + [
    (key, inner) for key in GOOD if isinstance(GOOD[key], dict) for inner in GOOD[key]
]


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(PATHS), VALUES)
def test_any_value_in_any_place_is_read_or_refused_in_words(
    path: tuple[str, ...], value: object
) -> None:
    document = yaml.safe_load(EXPERIMENT)
    inside = document
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    _read_or_refuse(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


@settings(max_examples=examples(60), deadline=None)
@given(st.text(st.sampled_from("titledamorsn: {}[],\"'\n>|&*!%#`~\\\t.?@<0139"), max_size=100))
@example("title: !!int x")
@example("&a [*a]: 1")
@example('title: "\\ud800"')
@example("arms: {? [a] : b}")
@example("model: {" + ", ".join(f"k{n}: 1" for n in range(2000)) + "}")
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    _read_or_refuse(text)
    _read_or_refuse(EXPERIMENT + text)


def _read_or_refuse(text: str) -> None:
    try:
        said = [parse(text).experiment.title]
    except BadExperiment as error:
        said = [str(problem) for problem in error.problems]
    assert said
    for words in said:
        words.encode()
        assert "pydantic" not in words
        assert "\n" not in words


# ── Very much of it ──────────────────────────────────────────────────────────────────────────


HEAD, _, TAIL = EXPERIMENT.partition("model:")
KEYS = ",".join(f"k{n}: 1" for n in range(3500))

FEW = ",".join(f"k{n}: 1" for n in range(90))


def arms(count: int, body: str) -> str:
    return "".join(f"  a{n}: {{{body}}}\n" for n in range(count))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEAD}model: {{{KEYS}}}\ntrain: {{{KEYS}}}\nresources: {{kind: cpu}}\nseeds: [0]\n"
         f"arms:\n{arms(256, '')}", "more is wrong than these 50 problems"),
        (f"{HEAD}model: {{{KEYS}}}\ntrain: {{}}\nresources: {{kind: cpu}}\n"
         f"arms:\n{arms(4000, '')}", "4000 runs are more than the 256"),
        (f"{HEAD}model:{TAIL}{arms(4000, 'train: 1')}", "more is wrong than these 50 problems"),
        (f"{HEAD}model:{TAIL}{arms(80, 'model: {' + FEW + '}')}",
         "more is wrong than these 50 problems"),
        ("".join(f"titel{n}: 1\n" for n in range(6000)), "more is wrong than these 50 problems"),
    ],
)  # fmt: skip
def test_a_long_file_is_answered_with_work_in_proportion_to_its_length(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []
    whole = lib_problems.told
    monkeypatch.setattr(lib_problems, "told", lambda *args: written.append(args) or whole(*args))
    guessed: list[object] = []
    near = lib_problems.near
    monkeypatch.setattr(lib_problems, "near", lambda *args: guessed.append(args) or near(*args))
    found = problems(text)
    assert any(said in message for _, _, message in found)
    assert len(found) <= MAX_PROBLEMS + 1
    assert len(written) <= 2 * MAX_PROBLEMS
    assert len(guessed) <= 3 * MAX_PROBLEMS
