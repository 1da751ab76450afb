"""Steps as they are declared: what they become, and what is said of those that cannot be."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.schema import step_graph
from runner.spec import declaration

HEAD = "title: Steps\nresources: {kind: cpu}\nsteps:\n"
MODEL = "{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}"
TRAIN = "{train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}"
TEXTS = f"""\
  t: {{do: tokenize, config: {{source: stdlib}}}}
  model: {{do: train, inputs: {{tokens: t}}, config: {{model: {MODEL}, train: {TRAIN}}}}}
"""


def nodes(text: str) -> dict[str, object]:
    return dict(declaration.parse(HEAD + text, "experiment.yaml").nodes)


def problems(text: str, head: str = HEAD) -> list[tuple[int, str, str]]:
    with pytest.raises(BadExperiment) as it:
        declaration.parse(head + text, "experiment.yaml")
    return [(one.line, one.field, one.message) for one in it.value.problems]


def test_a_sweep_is_many_nodes_and_who_takes_it_takes_all() -> None:
    experiment = declaration.parse(
        HEAD
        + "  text: {do: make:it}\n"
        + "  tokens: {do: tokenize, inputs: {text: text}}\n"
        + f"  train: {{do: train, inputs: {{tokens: tokens}}, config: {{model: {MODEL}, "
        + f"train: {TRAIN}}}, sweep: {{seed: [0, 1], train.learning_rate: [0.1, 0.2]}}}}\n"
        + "  score: {do: evaluate, inputs: {models: train, tokens: tokens}}\n",
        "experiment.yaml",
    )
    runs = [name for name in experiment.nodes if name.startswith("train/")]
    assert runs == [f"train/seed={s},learning_rate={r}" for s in (0, 1) for r in (0.1, 0.2)]
    assert experiment.nodes["score"].inputs == {"models": tuple(runs), "tokens": ("tokens",)}
    config = experiment.nodes["train/seed=1,learning_rate=0.2"].config
    assert (config["seed"], config["train"]["learning_rate"]) == (1, 0.2)
    assert config["train"]["beta2"] == 0.95, "defaults are filled in"
    assert list(experiment.nodes)[:2] == ["text", "tokens"]
    assert experiment.nodes["text"].own == ("make:it",)
    assert list(experiment.arms) == ["learning_rate=0.1", "learning_rate=0.2"]


@pytest.mark.parametrize(
    ("text", "line", "field", "sentence"),
    [
        ("  a: {do: tokenise}\n", 4, "steps.a.do", "did you mean `tokenize`?"),
        ("  a: {do: 'x y'}\n", 4, "steps.a.do", "or write module:function"),
        ("  a: {}\n", 4, "steps.a.do", "is missing"),
        ("  a: {do: m:f, input: {}}\n", 4, "steps.a.input", "did you mean `inputs`?"),
        ("  A: {do: m:f}\n", 4, "steps.A", "`A` is not a name of a step"),
        ("  a: {do: m:f, inputs: {X: a}}\n", 4, "steps.a.inputs.X", "is not a name of an input"),
        ("  text: {do: m:f}\n  b: {do: m:g, inputs: {x: txt}}\n", 5, "steps.b.inputs.x",
         "there is no step `txt`; did you mean `text`?"),
        ("  a: {do: filter}\n", 4, "steps.a", "`filter` needs the input `text`"),
        ("  t: {do: m:f}\n  a: {do: filter, inputs: {text: t, texts: t}}\n", 5,
         "steps.a.inputs.texts", "`filter` takes `text`; did you mean `text`?"),
        ("  a: {do: tokenize, config: {source: stdlib, tokeniser: bpe}}\n", 4,
         "steps.a.config.tokeniser", "unknown key; did you mean `tokenizer`?"),
        ("  a: {do: m:f, inputs: {x: b}}\n  b: {do: m:f, inputs: {x: a}}\n", 4,
         "steps.a.inputs", "so that none can be first"),
        ("  text: {do: m:f, seeds: [0]}\n  b: {do: m:g, inputs: {x: text/1}}\n", 5,
         "steps.b.inputs.x", "`text/1` would be one point of `text`, and an input is a whole step; "
         "declare the point that is meant as a step of its own"),
        ("  text: {do: m:f}\n  b: {do: m:g, inputs: {x: txt/learning_rate=0.1}}\n", 5,
         "steps.b.inputs.x", "no step `txt/learning_rate=0.1`; did you mean `text`?"),
        ("  text: {do: m:f, sweep: {x: [1, 2]}}\n  b: {do: filter, inputs: {text: text}}\n", 5,
         "steps.b.inputs.text", "`text` is a sweep, and `filter` takes one output here"),
        ("  s: {do: m:f, seeds: [0]}\n  b: {do: evaluate, inputs: {models: s, tokens: s}}\n", 5,
         "steps.b.inputs.tokens", "`s` is a sweep, and `evaluate` takes one output here"),
        ("  a: {do: m:f, resources: {kind: gpu}}\n", 4, "steps.a.resources.kind",
         "the lab has no devices of kind `gpu`; it has `cpu`, `h100`, `v4`, `v5e`, `v5p`"),
        ("  a: {do: m:f, resources: {kind: v4}}\n", 4, "steps.a.resources.kind",
         "slices of v4 are for `train` steps; write one of `cpu`, `h100` here"),
        ("  a: {do: m:f, config: {x: 1}, sweep: {x.y: [1]}}\n", 4, "steps.a.sweep",
         "`x.y` leads through something that is no mapping"),
        ("  a: {do: m:f, sweep: {x: [1, 1]}}\n", 4, "steps.a.sweep", "have the same name"),
        ("  a: {do: m:f, sweep: {name: [b, c]}}\n", 4, "steps.a.sweep",
         "in a grid it varies nothing"),
        ("  a: {do: m:f, sweep: {" + ", ".join(f"k{n}: [0, 1, 2, 3]" for n in range(9)) + "}}\n", 3,
         "steps", "262,144 steps are more than the 10,000"),
        ("  a: {do: m:f, config: {x: 1e999}}\n", 4, "steps.a.config", "not finite"),
        ("  a: {do: m:f, resources: {kind: cpu, count: 2}}\n", 4, "steps.a.resources.count",
         "write `count: 1`"),
        ("  a: {do: m:f, sweep: {x: []}}\n", 4, "steps.a.sweep",
         "a sweep is a grid, such as {seed: [0, 1]"),
        (f"  t: {{do: m:f}}\n  a:\n    do: train\n    inputs: {{tokens: t}}\n    config:\n"
         f"      model: {MODEL}\n      train: {TRAIN}\n    sweep: {{model.num_heads: [2, 3]}}\n",
         11, "steps.a.sweep.model.num_heads.1", "num_heads 3 does not divide hidden_dim 8"),
        ("  a: {do: m:f}\narms: {}\n", 5, "arms", "where there are `steps`"),
        ("  a: {do: tokenize}\n", 4, "steps.a", "needs the input `text` or a `source`"),
        ("  a: {do: tokenize, config: {source: stdlib, tokenizer: bpe}}\n", 4,
         "steps.a.config.vocab_size", "a bpe needs a vocab_size"),
        ("  a: {do: tokenize, config: {source: stdlib, special_tokens: [<a>]}}\n", 4,
         "steps.a.config.special_tokens", "only a bpe that is trained here takes special_tokens"),
        ("  a: {do: tokenize, config: {source: stdlib, tokenizer: bpe, vocab_size: 300, "
         "special_tokens: [<a>, <b>, <a>]}}\n", 4,
         "steps.a.config.special_tokens", "the tokenizer has `<a>` already"),
        (f"  t: {{do: m:f}}\n  b: {{do: train, inputs: {{tokens: t}}, config: {{train: {TRAIN}, "
         "own: {model: 'm:F'}, model: {seq_len: 16}}}\n  a: {do: export, inputs: {models: b, "
         "tokens: t}}\n", 6, "steps.a.inputs.models", "`b` trains the own model `m:F`, and "
         "`transformers` has no code for it"),
        (f"{TEXTS}  a: {{do: generate, inputs: {{models: model, tokens: t}}, config: "
         "{chats: [[{role: user, content: hi}]]}}\n", 6,
         "steps.a.config.chats", "`model` is not trained on conversations, so it has no chat"),
        (f"{TEXTS}  a: {{do: generate, inputs: {{models: model, tokens: t}}, config: "
         "{chats: [[{role: assistant, content: hi}]]}}\n", 6,
         "steps.a.config.chats.0", "there is nothing to answer; end it with a message of the user"),
        (f"{TEXTS}  a: {{do: generate, inputs: {{models: model, tokens: t}}, config: "
         "{chats: [[{role: bot, content: hi}]]}}\n", 6,
         "steps.a.config.chats.0.0.role", "must be"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_with_its_line(
    text: str, line: int, field: str, sentence: str
) -> None:
    found = problems(text)
    assert (line, field) in [(one, other) for one, other, _ in found], found
    assert any(sentence in words for _, _, words in found), found


@pytest.mark.parametrize(
    ("key", "of", "taker", "sentence"),
    [
        ("text", "tokens", "do: filter",
         "the step `tokens` makes a token store, and `filter` takes a text here; name a step that "
         "does `corpus` or `filter` or "),
        ("text", "train", "do: map, config: {function: 'm:f'}", "makes a trained model, and `map`"),
        ("text", "scores", "do: tokenize", "makes scores, and `tokenize` takes a text here"),
        ("tokenizer", "mix", "do: tokenize, config: {source: stdlib, tokenizer: given}",
         "takes a token store or an imported model or a tokenizer here; name what it mixes"),
        ("tokens", "short", f"do: train, config: {{model: {MODEL}, train: {TRAIN}}}",
         "makes a text, and `train` takes a token store or a mixture of token stores or a store of "
         "conversations here"),
        ("models", "tokens", "do: evaluate", "and `evaluate` takes a trained model or an "
         "imported model here; name a step that does `train` or `import`, or own code"),
    ],
)  # fmt: skip
def test_a_wrong_input_kind_is_reported_except_from_own_code(
    key: str, of: str, taker: str, sentence: str
) -> None:
    makers = (
        "  own: {do: m:f}\n  short: {do: filter, inputs: {text: own}}\n"
        "  tokens: {do: tokenize, inputs: {text: short}}\n"
        "  mix: {do: mix, inputs: {a: tokens, b: own}, config: {weights: {a: 1, b: 1}}}\n"
        f"  train: {{do: train, inputs: {{tokens: mix}}, config: {{model: {MODEL}, "
        f"train: {TRAIN}}}}}\n  scores: {{do: evaluate, inputs: {{models: train, tokens: mix}}}}\n"
    )
    also = ", tokens: mix" if key == "models" else ""
    ((line, field, words),) = problems(f"{makers}  a: {{{taker}, inputs: {{{key}: {of}{also}}}}}\n")
    assert (line, field) == (10, f"steps.a.inputs.{key}")
    assert sentence in words
    assert nodes(f"{makers}  a: {{{taker}, inputs: {{{key}: own{also}}}}}\n")
    assert nodes(f"{makers}  a: {{do: m:f, inputs: {{{key}: {of}}}}}\n")


@pytest.mark.parametrize("seed", ["-1", "2147483648", "1.0", "true", "null", "'7'"])
def test_a_seed_that_cannot_be_is_said_also_behind_some_that_can(seed: str) -> None:
    text = (
        f"  t: {{do: m:f}}\n  a:\n    do: train\n    inputs: {{tokens: t}}\n    config:\n"
        f"      model: {MODEL}\n      train: {TRAIN}\n    sweep: {{seed: [0, 1, {seed}]}}\n"
    )
    assert [field for _, field, _ in problems(text)] == ["steps.a.sweep.seed.2"]


@pytest.mark.parametrize(
    ("sweep", "line", "field", "words"),
    [
        ("{train.learning_rate: [0.1,\n      fast]}", 12, "train.learning_rate.1", "`fast`"),
        ("\n      seed: [0, 1]\n      train.learning_rate:\n      - 0.1\n      - fast", 15,
         "train.learning_rate.1", "`fast`"),
        ("\n    - {seed: 1}\n    - {name: two,\n       seed: true}", 14, "1.seed", "`true`"),
        ("\n    - {seed: 1, train.beta1: 0.5}\n    - {train.beta1: x, seed: 1}", 13,
         "1.train.beta1", "`x`"),
        ("\n    - train:\n        learning_rate: fast", 13, "0.train.learning_rate", "`fast`"),
        ("{train.learning_rat:\n      [0.1]}", 12, "train.learning_rat.0", "unknown key"),
    ],
)  # fmt: skip
def test_a_value_of_a_sweep_that_cannot_be_is_said_where_it_stands(
    sweep: str, line: int, field: str, words: str
) -> None:
    text = (
        f"  t: {{do: m:f}}\n  a:\n    do: train\n    inputs: {{tokens: t}}\n    config:\n"
        f"      model: {MODEL}\n      train: {TRAIN}\n    sweep: {sweep}\n"
    )
    found = {(line, field): message for line, field, message in problems(text)}
    assert words in found[line, f"steps.a.sweep.{field}"], found


def test_all_points_that_cannot_be_are_told_at_once_and_each_once() -> None:
    text = (
        f"  t: {{do: m:f}}\n  a:\n    do: train\n    inputs: {{tokens: t}}\n    config:\n"
        f"      model: {MODEL}\n      train: {TRAIN}\n    seeds: [0, 1]\n"
        "    sweep: {train.learning_rate: [fast, 0.1, slow], train.beta1: [0.5, 2]}\n"
    )
    place = "steps.a.sweep.train"
    assert [field.removeprefix(f"{place}.") for _, field, _ in problems(text)] == [
        "learning_rate.0",
        "beta1.1",
        "learning_rate.2",
    ]


def test_seeds_of_a_sweep_are_read_as_if_each_stood_alone() -> None:
    step = (
        "  t: {{do: m:f}}\n  a:\n    do: train\n    inputs: {{tokens: t}}\n    config:\n"
        "      model: {model}\n      train: {train}\n    sweep: {{{sweep}}}\n"
    )
    rates = "train.learning_rate: [0.1, 0.2]"
    together = nodes(step.format(model=MODEL, train=TRAIN, sweep=f"{rates}, seed: [0, 5]"))
    for seed in (0, 5):
        alone = nodes(step.format(model=MODEL, train=TRAIN, sweep=f"{rates}, seed: [{seed}]"))
        for name, node in alone.items():
            assert together[name] == node, name


def test_no_steps_are_no_experiment() -> None:
    ((_, field, message),) = problems(" {}\n")
    assert field == "steps"
    assert message.startswith("must not be empty; write `steps: {tokenize: ")


def test_arms_and_seeds_stand_for_a_graph() -> None:
    here = Path(declaration.__file__).parents[2] / "experiments" / "warm-learning-rate"
    nodes = declaration.load(here).nodes
    trains = [f"train/{arm},seed={seed}" for arm in ("slow", "fast") for seed in (0, 1, 2)]
    assert list(nodes) == ["tokenize", *trains, "evaluate"]
    assert nodes["evaluate"].inputs == {"models": tuple(trains), "tokens": ("tokenize",)}


def test_sweeps_that_take_sweeps_are_no_way_to_a_million_inputs() -> None:
    points = f"sweep: {{n: [{', '.join(map(str, range(600)))}]}}"
    text = f"  a: {{do: m:f, {points}}}\n  b: {{do: m:f, inputs: {{x: a}}, {points}}}\n"
    ((line, field, words),) = problems(text)
    assert (line, field) == (5, "steps.b.inputs")
    assert "its 600 points take 360,000 inputs together, and 200,000 is the most" in words


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (f"{{do: m:f, sweep: {{a: [{'x' * 900}], b: {[*range(100)]}, c: {[*range(100)]}}}}}",
         "of configuration; 8,000,000 is the most"),
        (f"{{do: m:f, sweep: {{b: {[*range(100)]}}}, seeds: {[0] * 1000}}}",
         "a seed is here twice"),
    ],
)  # fmt: skip
def test_a_sweep_that_is_too_large_is_refused_before_it_is_expanded(
    step: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, word = list[str](), step_graph._word

    def noted(text: str) -> str:
        named.append(text)
        return word(text)

    monkeypatch.setattr(step_graph, "_word", noted)
    assert any(words in message for _, _, message in problems(f"  a: {step}\n"))
    assert len(named) <= 100, "each point once, and of what is too large one"
