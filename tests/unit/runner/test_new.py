"""`regatta new`: what it writes is an experiment that plans and runs as it stands."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.analysis import speedrun_rows
from runner.cli import new as cli_new
from runner.cli.main import app
from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.planning.code_digest import of_lab, reach
from runner.schema import lab_config


def new(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["new", *arguments])
    return result.exit_code, result.output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "experiments"


@pytest.mark.parametrize("starter", cli_new.starters())
def test_every_starter_plans_as_it_stands(here: Path, starter: str) -> None:
    code, said = new("first", "--from", starter)
    assert code == 0, said
    assert "regatta run experiments/first" in said
    text = (here / "first" / "experiment.yaml").read_text()
    assert "regatta run experiments/first " in text
    assert "NAME" not in text
    assert planner.plan_folder(here / "first").cost.runs > 1


@pytest.mark.parametrize("track", lab_config.defaults().tracks)
def test_an_entry_is_written_for_each_track_and_fits_it(here: Path, track: str) -> None:
    code, said = new("mine", track, "--from", "speedrun")
    assert code == 0, said
    assert "regatta check experiments/mine" in said
    assert [path.name for path in (here / "mine").iterdir()] == ["experiment.yaml"]
    if track.startswith("fineweb"):
        with pytest.raises(BadExperiment, match="`regatta corpus fetch fineweb-edu@10BT`"):
            planner.plan_folder(here / "mine")
        return
    plan = planner.plan_folder(here / "mine")
    assert plan.speedrun
    assert plan.speedrun.track == track
    assert speedrun_rows.refused(plan) == ()


def test_a_track_is_named_with_its_starter_and_exists(here: Path) -> None:
    assert "goes with `--from speedrun`" in new("mine", "tiny-budget")[1]
    code, said = new("mine", "tiny-budged", "--from", "speedrun")
    assert code == 2
    assert "did you mean `tiny-budget`?" in said
    assert not here.exists()


def test_the_hackable_one_is_a_model_of_its_own_at_four_sizes(here: Path) -> None:
    new("mine", "--from", "hackable")
    assert sorted(path.name for path in (here / "mine").iterdir()) == [
        "experiment.yaml",
        "model.py",
    ]
    steps = planner.plan_folder(here / "mine").steps
    trained = sorted((step for step in steps.values() if step.do == "train"), key=lambda x: x.turn)
    sizes = [step.config["model"]["width"] for step in trained]
    assert sizes == sorted(set(sizes)), "the smallest comes first"
    assert len(sizes) == 4
    assert list(reach("model", here / "mine")) == ["model.py"]
    assert not of_lab(["model.py"], here / "mine", here), "nothing of the lab's"


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ('rule: "^[A-Z]', 'rule: "^[a-z]'),
        ('rule: "^[A-Z][a-z]+ [a-z]"', 'ask: {prompt: "Is this good?\\n{example}", model: m, '
         "max_tokens: 9000000, max_dollars: 2}"),
    ],
)  # fmt: skip
def test_after_another_rule_or_prompt_only_what_depends_on_the_labels_runs_again(
    here: Path, old: str, now: str
) -> None:
    new("shop", "--from", "datashop")
    before = planner.plan_folder(here / "shop").steps
    declared = here / "shop" / "experiment.yaml"
    assert old in declared.read_text()
    declared.write_text(declared.read_text().replace(old, now))
    after = planner.plan_folder(here / "shop").steps
    changed = {name for name in before if before[name].fingerprint != after[name].fingerprint}
    chosen = {f"anneal/chosen,seed={seed}" for seed in range(3)}
    assert (
        changed == {"labels", "scores", "chosen", "chosen-tokens", "evaluate", "compare"} | chosen
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mine", "--from", "hackble"],
         "no starter `hackble`; there are `datashop`, `hackable`, `plain` and `speedrun`; did you "
         "mean `hackable`?"),
        (["My Idea!"], "`My Idea!` is not a valid name; use a–z, 0–9, `_` and `-`; how "
         "about `my-idea`?"),
        (["../mine"], "`../mine` is not a valid name"),
        (["taken"], "experiments/taken is there already; choose another name"),
    ],
)  # fmt: skip
def test_new_writes_nothing_if_it_cannot_write_everything(
    here: Path, arguments: list[str], sentence: str
) -> None:
    (here / "taken").mkdir(parents=True)
    code, said = new(*arguments)
    assert code == 2
    assert sentence in " ".join(said.split())
    assert [*here.rglob("*")] == [here / "taken"]


def test_an_entry_names_who_enters_and_never_the_starters_placeholder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", 'Ada "the {first}" Löw: #1')
    assert new("mine", "tiny-budget", "--from", "speedrun")[0] == 0
    speedrun = planner.plan_folder(here / "mine").speedrun
    assert speedrun
    assert speedrun.author.name == 'Ada "the {first}" Löw: #1'
    monkeypatch.delenv("GIT_AUTHOR_NAME")
    monkeypatch.delenv("USER", raising=False)
    assert new("other", "tiny-budget", "--from", "speedrun")[0] == 0
    file = here / "other" / "experiment.yaml"
    assert 'author: {name: "anonymous"}' in file.read_text()
    file.write_text(file.read_text().replace('"anonymous"', "your name"))
    with pytest.raises(BadExperiment, match=r"line 14, `speedrun.author.name`: `your name` stands"):
        planner.plan_folder(file.parent)
