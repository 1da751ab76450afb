"""Own code as it is declared, in steps and in arms: what it becomes, what an edit makes again, and
what is said where it cannot be."""

from pathlib import Path

import pytest

from runner.cli import terminal
from runner.lib.problems import BadExperiment
from runner.planning import code_digest, planner
from runner.schema.record import Plan
from runner.spec import declaration

SHORT = """\
title: Mine against the lab's
data: {source: stdlib}
model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}
train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
eval: {tokens: 64}
resources: {kind: cpu}
seeds: [0, 1]
arms:
  theirs: {}
  mine:
    model: {width: 4}
    own: {model: "model:Mine"}
  harder: {own: {loss: "loss:focal"}, options: {gamma: 2}}
"""
STEPS = """\
title: Mine, averaged
resources: {kind: cpu}
steps:
  tokens: {do: tokenize, config: {source: stdlib}}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      own: {model: "model:Mine", loss: "loss:focal"}
      model: {seq_len: 16, width: 4}
      train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}
    sweep: {options.gamma: [1, 2]}
  average: {do: "average:all", inputs: {models: train}}
  scores: {do: evaluate, inputs: {models: train, tokens: tokens}}
  of_average: {do: evaluate, inputs: {models: average, tokens: tokens}}
"""
MODULES = {
    "model.py": "from parts import WIDTH\n\n\nclass Mine:\n    width = WIDTH\n",
    "parts.py": "WIDTH = 1\n",
    "loss.py": "def focal(config, logits, targets): ...\n",
    "average.py": "def all(config, inputs, out): ...\n",
}


def planned(folder: Path, declared: str, **modules: str) -> Plan:
    folder.mkdir(exist_ok=True)
    for name, text in {"experiment.yaml": declared, **MODULES}.items():
        (folder / name).write_text(modules.get(name.removesuffix(".py"), text))
    return planner.plan_folder(folder)


def test_arms_with_own_code_become_steps(tmp_path: Path) -> None:
    plan = planned(tmp_path / "x", SHORT)
    arms = [f"train/{arm},seed={seed}" for arm in ("harder", "mine", "theirs") for seed in (0, 1)]
    assert list(plan.steps) == ["evaluate", "tokenize", *arms]
    mine = plan.steps["train/mine,seed=1"]
    assert mine.config["own"] == {"model": "model:Mine"}
    assert mine.config["seed"] == 1
    assert mine.config["model"] == {
        **{"hidden_dim": 8, "intermediate_dim": 16, "num_layers": 1, "num_heads": 2},
        **{"seq_len": 16, "vocab_size": 256, "width": 4},
    }, "what is free is handed on as it stands, with what the lab must know"
    harder = plan.steps["train/harder,seed=0"].config
    assert (harder["options"], harder["model"]["rope_theta"]) == ({"gamma": 2}, 10_000.0)
    assert plan.steps["evaluate"].config["tokens"] == 64
    assert [(name, arm.own, arm.parameters is None) for name, arm in plan.arms.items()] == [
        ("harder", {"loss": "loss:focal"}, False),
        ("mine", {"model": "model:Mine"}, True),
        ("theirs", {}, False),
    ], "what a model of the experiment's own costs is not known"


@pytest.mark.parametrize("declared", [SHORT, STEPS])
def test_a_step_names_the_own_code_that_it_runs(tmp_path: Path, declared: str) -> None:
    """`own` is what the bot goes by: empty for those steps, and only those, that run none."""
    steps = planned(tmp_path / "x", declared).steps
    own = {name.partition(",seed")[0]: step.own for name, step in steps.items()}
    model, loss = "model:Mine", "loss:focal"
    assert own == (
        {
            "tokenize": (),
            "train/theirs": (),
            "train/mine": (model,),
            "train/harder": (loss,),
            "evaluate": (model,),
        }
        if declared == SHORT
        else {
            "tokens": (),
            "train/gamma=1": (model, loss),
            "train/gamma=2": (model, loss),
            "average": ("average:all",),
            "scores": (model,),
            "of_average": (model,),
        }
    )
    for step in steps.values():
        mine = {name for name in step.code if not name.startswith("lab:")}
        files = {name.partition(":")[0] + ".py" for name in step.own}
        assert mine == files | ({"parts.py"} if model in step.own else set())
        assert step.store == (f"x.{step.do.replace(':', '.')}" if step.own else step.do)


@pytest.mark.parametrize(
    ("module", "edit", "again"),
    [
        ("model", "# words\n" + MODULES["model.py"], {"train", "scores", "of_average"}),
        ("loss", '"""Focal."""\n' + MODULES["loss.py"], {"train"}),
        ("model", MODULES["model.py"] + "    height = 2\n", {"train", "scores", "of_average"}),
        ("parts", "WIDTH = 2\n", {"train", "scores", "of_average"}),
        ("loss", MODULES["loss.py"] + "X = 1\n", {"train"}),
        ("average", MODULES["average.py"] + "X = 1\n", {"average"}),
    ],
)
def test_a_line_of_own_code_and_a_comment_too_make_again_what_runs_it(
    tmp_path: Path, module: str, edit: str, again: set[str]
) -> None:
    before = planned(tmp_path / "x", STEPS).steps
    after = planned(tmp_path / "x", STEPS, **{module: edit}).steps
    changed = {name.partition("/")[0] for name in after if after[name].code != before[name].code}
    assert changed == again
    remade = {name.partition("/")[0] for name in after if before[name].fingerprint
              != after[name].fingerprint}  # fmt: skip
    follow = {"train": {"train", "average", "scores", "of_average"}, "average": {"of_average"}}
    assert remade == again.union(*(follow.get(name, set()) for name in again))


def test_costs_of_own_models_are_said_to_be_counted_later(tmp_path: Path) -> None:
    some, all_of_them = planned(tmp_path / "x", SHORT).cost, planned(tmp_path / "x", STEPS)
    assert (some.runs, some.uncounted, some.tokens) == (6, 2, 6 * 4 * 2 * 16)
    assert (all_of_them.cost.runs, all_of_them.cost.uncounted) == (2, 2)
    words = " ".join(terminal._cost(planned(tmp_path / "x", SHORT), {}))
    assert "2 of 6 runs train its own models, whose FLOPs are unknown" in words
    words = " ".join(terminal._cost(all_of_them, {}))
    assert "whose FLOPs are unknown before they run" in words
    assert "hardware FLOPs" not in words


def test_an_own_data_function_may_read_inputs_of_any_name(tmp_path: Path) -> None:
    scored = STEPS.replace("inputs: {tokens: tokens}\n", "inputs: {tokens: tokens, order: by}\n", 1)
    scored = scored.replace("  train:\n    do", '  by: {do: "average:all"}\n  train:\n    do')
    with pytest.raises(BadExperiment, match="no phase has `order` as its `tokens`"):
        planned(tmp_path / "x", scored)
    plan = planned(tmp_path / "x", scored.replace("own: {", 'own: {data: "loss:focal", '))
    assert set(plan.steps["train/gamma=1"].inputs) == {"tokens", "order"}
    text = scored.replace('by: {do: "average:all"}', "by: {do: filter, inputs: {text: average}}")
    text = text.replace("own: {", 'own: {data: "loss:focal", ').replace("{models: train}", "{}")
    assert planned(tmp_path / "x", text).steps["by"].do == "filter", "and of any kind"


def problems(declared: str) -> list[tuple[int, str, str]]:
    with pytest.raises(BadExperiment) as it:
        declaration.parse(declared, "experiment.yaml")
    return [(one.line, one.field, one.message) for one in it.value.problems]


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "sentence"),
    [
        ("{model: \"model:Mine\"}", "{modle: \"model:Mine\"}", 12, "arms.mine.own.modle",
         "unknown key; did you mean `model`?"),
        ("model:Mine", "model.Mine", 12, "arms.mine.own.model",
         "`model.Mine` is no module:function of the experiment's folder"),
        ("{model: \"model:Mine\"}", "{model: 3}", 12, "arms.mine.own.model", "must be text"),
        ("width: 4", "seq_len: 0", 11, "arms.mine.model.seq_len", "greater than 0"),
        ("width: 4", "width: 1e999", 11, "arms.mine.model", "it has a number that is not finite"),
        ("theirs: {}", "theirs: {model: {width: 4}}", 9, "arms.theirs.model.width", "unknown key"),
        ("theirs: {}", "theirs: {options: {width: 4}}", 9, "arms.theirs.options",
         "and the arm `theirs` names none"),
        ("loss: \"loss:focal\"}",
         "schedule: \"loss:focal\"}, train: {phases: [{at: 2, warmup: 1}]}", 13,
         "arms.harder.own", "phases change the schedule, which is own code's here"),
        ("learning_rate: 0.01", "learning_rate: -1", 4, "train.learning_rate", "greater than 0"),
        ("seeds:", "own: {optimiser: \"a:b\"}\nseeds:", 7, "own.optimiser",
         "did you mean `optimizer`?"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_reported_at_the_authors_line(
    old: str, new: str, line: int, field: str, sentence: str
) -> None:
    assert old in SHORT
    found = problems(SHORT.replace(old, new, 1))
    assert any(
        (line, field) == one[:2] and sentence in one[2]
        for one in found
    ), found  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "field", "sentence"),
    [
        ("seq_len: 16, ", "", "steps.train.config.model.seq_len", "is missing"),
        ("model: \"model:Mine\", ", "", "steps.train.config.model.width", "unknown key"),
        ("learning_rate: 0.01}\n    sweep: {options.gamma: [1, 2]}",
         "learning_rate: 0.01, phases: [{at: 2, tokens: tokens}]}\n"
         "    sweep: {own.data: [\"loss:focal\"]}",
         "steps.train.config.own", "phases change the data, which is own code's here"),
        ("loss: \"loss:focal\"", "losses: \"loss:focal\"", "steps.train.config.own.losses",
         "unknown key; did you mean `loss`?"),
        ("own: {model: \"model:Mine\", loss: \"loss:focal\"}\n      model: {seq_len: 16, width: 4}",
         "model: {depth: 1, seq_len: 16}", "steps.train.config.options",
         "`options` are for functions of `own`, and the arm `gamma=1` names none"),
    ],
)  # fmt: skip
def test_an_invalid_value_in_a_step_is_reported_with_its_field(
    old: str, new: str, field: str, sentence: str
) -> None:
    assert old in STEPS
    found = problems(STEPS.replace(old, new, 1))
    assert any(field == one[1] and sentence in one[2] for one in found), found


@pytest.mark.parametrize(
    ("declared", "line", "field"),
    [(SHORT, 12, "arms.mine.own"), (STEPS, 5, "steps.train")],
)
def test_a_function_that_is_not_there_is_said_once_where_it_is_named(
    tmp_path: Path, declared: str, line: int, field: str
) -> None:
    with pytest.raises(BadExperiment) as it:
        planned(tmp_path / "x", declared.replace("model:Mine", "model:Your"))
    [problem] = it.value.problems
    assert (problem.line, problem.field) == (line, field)
    assert problem.message.endswith("has no `Your` in a module `model`; define it there")


@pytest.mark.parametrize(
    ("module", "text", "field", "sentence"),
    [
        ("loss", "import jax\ndef focal(config, logits): ...\n", "steps.train",
         "`focal` (line 2 of the module `loss`) takes 2 parameters, and it is called with 3: "
         "config, logits, targets"),
        ("loss", "def focal(config, logits, targets, gamma, *, x=1): ...\n", "steps.train",
         "takes 4 parameters, and it is called with 3"),
        ("average", "def all(config): ...\n", "steps.average",
         "takes 1 parameter, and it is called with 3: config, inputs, out"),
        ("model", "def Mine(): ...\n", "steps.train", "takes 0 parameters, and it is"),
    ],
)  # fmt: skip
def test_a_function_that_cannot_take_what_it_is_given_is_said_before_it_runs(
    tmp_path: Path, module: str, text: str, field: str, sentence: str
) -> None:
    with pytest.raises(BadExperiment) as it:
        planned(tmp_path / "x", STEPS, **{module: text})
    [problem] = it.value.problems
    assert (problem.field, sentence in problem.message) == (field, True), problem.message


def test_a_module_is_read_once_for_all_of_its_functions(tmp_path: Path) -> None:
    names = [f"f{n}" for n in range(30)]
    own = "".join(f"def {name}(document): ...\n" for name in names)
    steps = "".join(
        f"  {name}: {{do: map, config: {{function: 'loss:{name}'}}, inputs: {{text: text}}}}\n"
        for name in names
    )
    head = "title: Many\nresources: {kind: cpu}\nsteps:\n  text: {do: 'loss:text'}\n"
    own += "def text(config, inputs, out): ...\n"
    before = code_digest._read.cache_info().misses
    assert len(planned(tmp_path / "x", head + steps, loss=own).steps) == 31
    assert code_digest._read.cache_info().misses == before + 1


@pytest.mark.parametrize(
    "text",
    [
        "def focal(config, logits, targets, gamma=2): ...\n",
        "def focal(*everything): ...\n",
        "import jax\n@jax.jit\ndef focal(): ...\n",
        "from parts import wrapped\ndef focal(): ...\nfocal = wrapped(focal)\n",
        "from parts import wrapped\ndef focal(): ...\nfocal, other = wrapped(focal)\n",
        "from parts import *\ndef focal(): ...\n",
        "if True:\n    from parts import other as focal\ndef focal(): ...\n",
        "class focal:\n    def __new__(cls, config, logits, targets): ...\n",
        "from parts import focal\n",
        "focal = lambda: 0\n",
    ],
)
def test_a_function_with_an_unclear_signature_is_accepted(tmp_path: Path, text: str) -> None:
    assert planned(tmp_path / "x", STEPS, loss=text).steps


def test_arms_with_own_code_train_on_a_text_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "text.txt").write_text("A line of a text of its own.\n" * 400)
    plan = planned(folder, SHORT.replace("source: stdlib", "source: text.txt"))
    tokenize = plan.steps["tokenize"]
    assert plan.data
    assert tokenize.config["sha256"]["train"] == plan.data.train_sha256
    (folder / "text.txt").rename(folder / "other.txt")
    renamed = planned(folder, SHORT.replace("source: stdlib", "source: other.txt"))
    assert renamed.steps["tokenize"].fingerprint == tokenize.fingerprint, "a name is no content"
