"""`inputs: {init: …}` of a `train` step: which model each run continues, and what cannot be."""

import pytest

from runner.lib.problems import BadExperiment
from runner.schema import step_graph
from runner.spec import declaration

HEAD = """title: T
resources: {kind: cpu}
steps:
  text: {do: "own:text"}
  tokens: {do: tokenize, inputs: {text: text}}
"""
MODEL = "hidden_dim: 8, intermediate_dim: 16, num_layers: 2, num_heads: 2, seq_len: 16"
TRAIN = "train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01"


def step(
    name: str, of: str = "", model: str = "", train: str = "", init: str = "", more: str = ""
) -> str:
    """Of a declaration: lines that train `name` from `of`."""
    return f"""  {name}:
    do: train
    inputs: {{tokens: tokens{f", init: {of}" if of else ""}}}
    config:
      model: {{{MODEL}{model}}}
      train: {{{TRAIN}{train}}}
{f"      init: {{{init}}}" if init else ""}
{more}
"""


def graph(text: str) -> dict[str, object]:
    return dict(declaration.parse(HEAD + text, "experiment.yaml").nodes)


def problems(text: str) -> list[tuple[str, str]]:
    with pytest.raises(BadExperiment) as it:
        declaration.parse(HEAD + text, "experiment.yaml")
    assert all(one.line for one in it.value.problems)
    return [(one.field, one.message) for one in it.value.problems]


def test_each_point_of_a_sweep_is_continued_with_its_seed() -> None:
    pretrain = step("pretrain", more="    sweep: [{name: low}, {name: high}]\n    seeds: [0, 5]")
    nodes = graph(pretrain + step("tune", "pretrain"))
    made = {name: node.inputs["init"] for name, node in nodes.items() if name.startswith("tune")}
    assert made == {
        f"tune/tune,{point},seed={seed}": (f"pretrain/{point},seed={seed}",)
        for point in ("low", "high")
        for seed in (0, 5)
    }
    assert nodes["tune/tune,high,seed=5"].config["seed"] == 5


def test_a_sweep_that_continues_a_sweep_trains_every_pair() -> None:
    rates = "    sweep: {train.learning_rate: [0.1, 0.2]}"
    nodes = graph(
        step("pretrain", more="    seeds: [0, 1]")
        + step("tune", "pretrain", more=rates)
        + step("last", "tune")
    )
    found = [name for name in nodes if name.startswith("last")]
    assert found == [f"last/last,learning_rate={r},seed={s}" for r in (0.1, 0.2) for s in (0, 1)]
    assert nodes[found[0]].inputs["init"] == ("tune/learning_rate=0.1,seed=0",)
    assert nodes["tune/learning_rate=0.2,seed=1"].config["train"]["learning_rate"] == 0.2


def test_seeds_may_all_continue_one_model() -> None:
    nodes = graph(step("pretrain") + step("tune", "pretrain", more="    seeds: [0, 1]"))
    assert {nodes[f"tune/seed={n}"].inputs["init"] for n in (0, 1)} == {("pretrain",)}


def test_missing_parameters_are_listed_and_steps_of_a_schedule_add_up() -> None:
    on = "moments: true, schedule: continue"
    keep = ", keep_moments: true"
    nodes = graph(
        step("one", train=keep)
        + step("two", "one", train=keep, init=on)
        + step("three", "two", model=", qk_norm: learned", init="schedule: continue")
    )
    assert "init" not in nodes["one"].config
    assert nodes["two"].config["init"] == {
        "moments": True, "schedule": "continue", "steps": 4, "fresh": []
    }  # fmt: skip
    assert nodes["three"].config["init"]["steps"] == 8
    assert nodes["three"].config["init"]["fresh"] == [
        "blocks/attention/k_norm", "blocks/attention/q_norm"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (step("a") + step("b", "a", model=", vocab_size: 300"), "steps.b.config.model",
         "`a` has `embedding` as 256 × 8, and this model has it as 300 × 8 (1 more differ)"),
        (step("a", model=", qk_norm: learned") + step("b", "a"), "steps.b.config.model",
         "`a` has `blocks/attention/k_norm`, `blocks/attention/q_norm`, and this model has not"),
        (step("a") + step("b", "a", init="moments: true"), "steps.b.config.init.moments",
         "`a` keeps no moments; write `keep_moments: true` in its `train`"),
        (step("a", train=", keep_moments: true")
         + step("b", "a", train=", optimizer: muon", init="moments: true"),
         "steps.b.config.init.moments", "whose optimizer is another one"),
        (step("a") + step("b", "a", init="schedule: on"), "steps.b.config.init.schedule",
         "must be `new` or `continue`"),
        (step("a") + step("b", "a", init="moment: true"), "steps.b.config.init.moment",
         "did you mean `moments`?"),
        (step("a", init="moments: false"), "steps.a.config.init", "write `inputs: {init: STEP}`"),
        (step("b", "tokens"), "steps.b.inputs.init", "makes a token store, and `train` takes"),
        (step("a", more="    seeds: [0]") + step("b", "a", more="    seeds: [0]"),
         "steps.b.seeds", "each run continues with the seed of its point of `a`"),
        (step("a") + step("b", "a", train=", phases: [{at: 2, learning_rate: 0.1}]",
                          init="schedule: continue"),
         "steps.b.config.init.schedule", "write schedule: new, or no phases"),
        (step("b", "text", init="moments: true, schedule: continue"),
         "steps.b.config.init.moments", "only a `train` step has moments"),
        (step("a") + step("b", "a", train=", phases: [{at: 2, tokens: init}]"),
         "steps.b.config.train.phases.0.tokens", "`init` is a model and not a token store"),
        (step("a", "b") + step("b", "a"), "steps.a.inputs", "so that none can be first"),
    ],
)  # fmt: skip
def test_what_cannot_be_continued_is_said_where_it_is_declared(
    text: str, field: str, words: str
) -> None:
    said = [message for at, message in problems(text) if at == field]
    assert said, problems(text)
    assert words in said[0]


def test_only_the_plan_says_how_many_steps_were_before() -> None:
    made = HEAD.replace("  tokens:", '  a: {do: "own:model", inputs: {text: text}}\n  tokens:')
    nodes = declaration.parse(made + step("b", "a", init="steps: 500"), "experiment.yaml").nodes
    assert nodes["b"].config["init"]["steps"] is None, "a new schedule begins at step 1"


def test_an_entry_to_a_speedrun_trains_from_nothing() -> None:
    entry = "speedrun: {track: lab-2026-11, author: {name: A}}\n"
    with pytest.raises(BadExperiment, match="an entry trains from nothing"):
        declaration.parse(entry + HEAD + step("a") + step("b", "a"), "experiment.yaml")


def test_the_name_of_the_continued_point_does_not_change_what_is_trained() -> None:
    one, other = (
        step_graph.fingerprint("regatta.train", {}, {"init": {name: "0" * 64}}, "")
        for name in ("a/low,seed=0", "b")
    )
    assert one == other


ANNEAL = """  other: {{do: tokenize, inputs: {{text: text}}}}
  pretrain:
    do: train
    inputs: {{tokens: tokens}}
    config: {{model: {{{model}}}, train: {{{train}}}}}
    seeds: [0, 1]
  anneal:
    do: train
    inputs: {{{inputs}, init: pretrain}}
    config: {{model: {{{model}}}, train: {{{train}{phases}}}}}
    sweep: [{{name: control, tokens: {first}}}, {{name: chosen, tokens: chosen}}]
"""


def annealed(
    inputs: str = "same: tokens, chosen: other", first: str = "same", phases: str = ""
) -> str:
    return ANNEAL.format(model=MODEL, train=TRAIN, inputs=inputs, first=first, phases=phases)


def test_each_arm_of_a_sweep_trains_on_an_input_of_its_own_from_the_model_of_its_seed() -> None:
    nodes = graph(annealed())
    assert {name: node.inputs for name, node in nodes.items() if name.startswith("anneal")} == {
        f"anneal/{arm},seed={seed}": {"tokens": (of,), "init": (f"pretrain/seed={seed}",)}
        for arm, of in (("control", "tokens"), ("chosen", "other"))
        for seed in (0, 1)
    }
    configs = [nodes[f"anneal/{arm},seed=0"].config for arm in ("control", "chosen")]
    assert configs[0] == configs[1], "it is the step that one would declare for this text alone"
    assert "tokens" not in configs[0]


def test_an_input_that_a_phase_names_too_keeps_its_name() -> None:
    phases = ", phases: [{at: 1, tokens: chosen}, {at: 2, tokens: same}]"
    nodes = graph(annealed(phases=phases))
    assert set(nodes["anneal/control,seed=0"].inputs) == {"tokens", "same", "chosen", "init"}
    back = ", phases: [{at: 1, tokens: chosen}, {at: 2, tokens: tokens}]"
    ((field, message), *_) = problems(
        annealed("same: tokens, chosen: other, tokens: tokens", phases=back)
    )
    assert field == "steps.anneal.config.train.phases.1.tokens"
    assert message.startswith("the first steps train on `same`, and a later phase cannot go")


@pytest.mark.parametrize(
    ("inputs", "first", "said"),
    [
        ("same: tokens, chosen: other", "sane",
         [("steps.anneal.inputs.same", "no phase has `same` as its `tokens`, so that it would "
           "not be trained on"),
          ("steps.anneal.sweep.0.tokens", "there is no input `sane`; did you mean `same`?")]),
        ("same: tokens, chosen: other", "init",
         [("steps.anneal.sweep.0.tokens", "`init` is a model and not a token store; name "
           "another input"),
          ("steps.anneal.inputs.same", "no phase has `same` as its `tokens`, so that it would "
           "not be trained on")]),
        ("spare: tokens, chosen: other", "chosen",
         [("steps.anneal.inputs.spare", "no phase has `spare` as its `tokens`, so that it would "
           "not be trained on")]),
    ],
)  # fmt: skip
def test_an_input_that_is_not_there_or_not_read_is_named(
    inputs: str, first: str, said: list[tuple[str, str]]
) -> None:
    assert sorted(problems(annealed(inputs, first))) == sorted(said)
