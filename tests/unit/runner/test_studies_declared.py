"""`ablate:` and `isoflop:` in a declaration: arms, plan, and what makes no sense."""

import re
from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import planner, study_words, subset
from runner.schema.record import Narrowing, Plan
from runner.spec import declaration
from tests import synthetic
from tests.scenarios.lab import EXPERIMENT, TEXT

ROOT = Path(__file__).parents[3]
FILE = "experiments/warm/experiment.yaml"
BEGIN = EXPERIMENT.replace("preregistration: 1\n", "").partition("arms:\n")[0]
ABLATION = BEGIN + (
    "ablate:\n"
    "  sizes:\n"
    "    small: {}\n"
    "    large: {model: {hidden_dim: 32}, train: {num_train_steps: 32}}\n"
    "    huge: {model: {hidden_dim: 64}, train: {num_train_steps: 64}}\n"
    "  hold_one_out:\n"
    "    decay: {train: {lr_schedule: constant, decay: null}}\n"
    "  add_one:\n"
    "    z-loss: {train: {z_loss_weight: 0.0001}}\n"
)
ISOFLOP = BEGIN.replace("num_train_steps: 16, ", "") + (
    "isoflop:\n"
    "  budgets: [2e8, 4e8]\n"
    "  sizes:\n"
    "    s: {model: {hidden_dim: 8}}\n"
    "    m: {}\n"
    "    l: {model: {hidden_dim: 24}}\n"
    "  ahead: [1e10]\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("warm")
    (found / "text.txt").write_text(TEXT)
    return found


def plan(folder: Path, declared: str) -> Plan:
    return planner.make_plan(declaration.parse(declared, FILE), folder, called="experiments/warm")


def test_an_ablation_is_a_short_form_of_arms(folder: Path) -> None:
    found = plan(folder, ABLATION)
    parts = ("baseline", "no-decay", "z-loss")
    sizes = ("small", "large", "huge")
    assert {*found.arms} == {f"{part}-{size}" for part in parts for size in sizes}
    assert found.cost.runs == 27
    assert found.arms["z-loss-large"].train.z_loss_weight == 0.0001
    assert found.arms["z-loss-large"].model.hidden_dim == 32
    assert found.arms["z-loss-large"].tokens == found.arms["baseline-large"].tokens
    assert found.ablation
    assert found.ablation.baseline == tuple(f"baseline-{size}" for size in sizes)
    assert [part.held_out for part in found.ablation.parts] == [True, False]
    assert Plan.model_validate_json(found.canonical()) == found
    (words,) = study_words.told(found)
    assert "1 part held out and 1 part added, one by one, at 3 sizes" in words


def test_the_steps_of_a_study_are_those_of_its_arms_written_out(folder: Path) -> None:
    found = plan(folder, ABLATION)
    arms = BEGIN + (
        "arms:\n"
        "  baseline-small: {}\n"
        "  z-loss-large: {model: {hidden_dim: 32}, "
        "train: {num_train_steps: 32, z_loss_weight: 0.0001}}\n"
    )
    trained = {name: step for name, step in plan(folder, arms).steps.items() if step.do == "train"}
    assert all(found.steps[name].fingerprint == step.fingerprint for name, step in trained.items())


def test_the_budget_decides_the_steps(folder: Path) -> None:
    found = plan(folder, ISOFLOP)
    assert {*found.arms} == {f"{size}-{budget}" for size in "sml" for budget in ("2e8", "4e8")}
    for name, arm in found.arms.items():
        assert arm.model_flops == pytest.approx(float(name[2:]), rel=0.06)
    assert found.isoflop
    assert found.isoflop.ahead == (1e10,)
    first, second = study_words.told(found)
    assert "2 budgets (2.00e8, 4.00e8 FLOPs a run) and 3 sizes" in first
    assert "misses its budget by" in second


def test_a_recipe_fills_in_the_shapes_of_the_sizes(folder: Path) -> None:
    recipe = (
        "title: By a recipe\n"
        "data: {source: text.txt}\n"
        "eval: {tokens: 64}\n"
        "model: {seq_len: 32}\n"
        "train: {recipe: delphi, train_batch_size: 1}\n"
        "resources: {kind: cpu}\n"
        "isoflop:\n"
        "  budgets: [3e10]\n"
        "  sizes: {s: {model: {hidden_dim: 32}}, m: {model: {hidden_dim: 48}}, "
        "l: {model: {hidden_dim: 64}}}\n"
    )
    for arm in plan(folder, recipe).arms.values():
        assert arm.model_flops == pytest.approx(3e10, rel=0.05)


EXAMPLES = re.findall(
    r"```yaml\n(.*?)```", (ROOT / "docs/tutorials/what-pays.md").read_text(), re.DOTALL
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_tutorial_can_be_planned(example: str, folder: Path) -> None:
    here = example.replace("source: stdlib", "source: text.txt")
    found = plan(folder, here.replace("resources:", "eval: {tokens: 64}\nresources:"))
    assert study_words.told(found)
    assert not any(
        "misses" in words or "do not reach" in words for words in study_words.told(found)
    )


def test_plans_without_a_study_are_written_as_before_there_were_any() -> None:
    words = synthetic.plan().canonical().decode()
    assert "ablation" not in words
    assert "isoflop" not in words


def test_few_seeds_and_few_sizes_are_warned_about(folder: Path) -> None:
    two = ABLATION.replace("[0, 1, 2]", "[0, 1]")
    assert any("Exploratory: 2 seeds" in words for words in study_words.told(plan(folder, two)))
    lines = [line for line in ABLATION.splitlines(keepends=True) if "huge" not in line]
    assert any(
        "Two sizes say little" in words for words in study_words.told(plan(folder, "".join(lines)))
    )


def test_a_part_of_a_study_may_be_approved(folder: Path) -> None:
    found = plan(folder, ABLATION)
    left = subset.narrowed(found, Narrowing(arms=("baseline-small", "z-loss-small")))
    assert {*left.arms} == {"baseline-small", "z-loss-small"}
    assert study_words.told(left)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("    large: {model: {hidden_dim: 32}, train: {num_train_steps: 32}}\n"
         "    huge: {model: {hidden_dim: 64}, train: {num_train_steps: 64}}\n", "",
         "one size has no slope"),
        ("{z_loss_weight: 0.0001}", "{z_loss_weight: 0.0}", "it changes nothing: the baseline has"),
        ("{model: {hidden_dim: 64}, train: {num_train_steps: 64}}", "{}",
         "takes no more FLOPs than `large` before it"),
        ("    z-loss:", "    no-decay:", "would be called `no-decay-small`, as another one is"),
        ("    z-loss:", f"    {'z' * 36}:", "40 characters are the most"),
        ("ablate:\n", "arms: {a: {}}\nablate:\n", "the arms follow from `ablate`; take this out"),
        ("  add_one:\n    z-loss: {train: {z_loss_weight: 0.0001}}\n",
         "  ad_one:\n    z-loss: {train: {z_loss_weight: 0.0001}}\n", "did you mean `add_one`?"),
        ("{z_loss_weight: 0.0001}", "{z_loss: 0.0001}",
         "line 16, `ablate.add_one.z-loss.train.z_loss`"),
    ],
)  # fmt: skip
def test_problems_of_an_ablation_are_reported(folder: Path, was: str, now: str, said: str) -> None:
    assert ABLATION.count(was) == 1
    with pytest.raises(BadExperiment) as caught:
        plan(folder, ABLATION.replace(was, now))
    assert any(said in str(problem) for problem in caught.value.problems), caught.value.problems


def test_an_ablation_without_parts_is_refused(folder: Path) -> None:
    with pytest.raises(BadExperiment, match="there is no part to hold out or to add"):
        plan(folder, ABLATION.partition("  hold_one_out")[0])


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("    l: {model: {hidden_dim: 24}}\n", "", "a parabola needs 3 sizes at least"),
        ("[2e8, 4e8]", "[2e6, 4e8]", "steps of"),
        ("[2e8, 4e8]", "[2e8, 2e8]", "a budget is here twice"),
        ("  ahead: [1e10]\n", "  tokens_per_parameter: [1, 2]\n", "leaves 0 sizes for it"),
        ("isoflop:\n", "ablate: {sizes: {a: {}}}\nisoflop:\n", "the arms follow from `ablate`"),
        ("    m: {}\n", "    m: {own: {model: 'm:M'}}\n", "not known before the run"),
        ("warmup: 0.1", "warmup: 0.1, num_train_steps: 9", "it follows from the budgets"),
        ("warmup: 0.1", "warmup: 0.1, phases: [{at: 1, train_batch_size: 9}]", "counts one batch"),
        ("  budgets: [2e8, 4e8]\n", "", "is missing; write `budgets: [1e12, 4e12]`"),
    ],
)  # fmt: skip
def test_problems_of_budgets_are_reported(folder: Path, was: str, now: str, said: str) -> None:
    assert ISOFLOP.count(was) == 1
    with pytest.raises(BadExperiment) as caught:
        plan(folder, ISOFLOP.replace(was, now))
    assert any(said in str(problem) for problem in caught.value.problems), caught.value.problems


def test_a_narrow_model_with_an_optimizer_that_keeps_small_norms_is_warned_of(folder: Path) -> None:
    keeps = BEGIN + (
        "arms:\n"
        "  small: {train: {optimizer: muonh, adam_learning_rate: 0.01}}\n"
        "  sized: {model: {init: mup}, train: {optimizer: muonh, adam_learning_rate: 0.01}}\n"
        "  free: {train: {optimizer: muon, adam_learning_rate: 0.01}}\n"
    )
    (words,) = study_words.told(plan(folder, keeps))
    assert words.startswith("small: the optimizer keeps each matrix's norm as it begins")
    assert "write `init: mup` or `init: marin`" in words
