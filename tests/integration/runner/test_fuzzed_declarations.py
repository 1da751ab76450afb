"""Mutations of all shipped declarations: each has a plan, or is refused in words."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import limited_plan, planner
from runner.planning.limited_plan import DeclaredText, Needed
from runner.schema import lab_config
from tests import declaration_fuzzer
from tests.examples import TIMES

# Daily 500, in `.ci/run` 5,000: see `REGATTA_EXAMPLES` in the Makefile.
CASES = 500 if TIMES == 1 else 5_000
TRAPS = Path(__file__).parents[2] / "traps" / "declarations"
WORDS = {
    "aliases": "line 3: an alias (`*name`) is not read here",
    "budgets": "`isoflop.budgets`: must have at most 100 entries",
    "circle": "`steps.a.inputs`: `a` needs `b` needs `a`, so that none can be first",
    "cycle": "`train.decay`: warmup 0.1 and decay 0.2 are more than a cycle of 53 steps together",
    "filter": "line 5, `steps.kept.config.matching`: it is not a regular expression",
    "hold-one-out": "`ablate.hold_one_out.Bad Name!`: `Bad Name!` is not a name of a part",
    "labels": "`steps.chats.config.labels`: must be a list, not `5`",
    "layers": "line 3, `model.num_layers`: it should be less than or equal to 4096, not `10000000`",
    "mesh": "`compute.mesh.fsdp`: it should be less than or equal to 65536",
    "missing-steps": "`steps.s0000.inputs.x`: there is no step `t0000`",
    "more-layers": "line 3, `model.num_layers`: it should be less than or equal to 4096",
    "nesting": "line 2: it is nested deeper than 20 levels",
    "own-nothing": "line 4, `model.width`: unknown key",
    "parentheses": "line 5, `steps.labels.config.rule`: it is not a regular expression",
    "phase-after-end": "line 4, `train.phases.0.at`: the run ends after 16 steps",
    "phase-of-nothing": "line 4, `train.phases.0.at`: this phase changes nothing; write one of",
    "phase-without-at": "line 4, `train.phases.0.at`: is missing",
    "repetition": "line 5, `steps.labels.config.rule`: it is not a regular expression",
    "stages": "536,870,912 parts (gradient_accumulation_steps) are too many to schedule; 32,768",
    "sweep": "`steps`: its plan of 9,801 steps has",
    "template": "`steps.chats.config.template`: the chat template is not Jinja",
    "trials": "line 8, `tune.trials`: it should be less than or equal to 10000, not `20000000`",
}


@pytest.mark.timeout(1200)
def test_no_mutation_of_a_declaration_is_a_traceback_or_beyond_the_limits() -> None:
    report = declaration_fuzzer.fuzz(1, range(CASES))
    assert report.cases == CASES
    assert report.findings == [], str(report)
    assert report.plans > CASES / 50, "mutations that leave nothing to plan test little"


@pytest.mark.parametrize("name", sorted(path.stem for path in TRAPS.iterdir()))
def test_a_declaration_that_asks_for_more_than_a_machine_has_is_refused_in_words(
    name: str, tmp_path: Path
) -> None:
    file = f"experiments/{name}/experiment.yaml"
    text = (TRAPS / f"{name}.yaml").read_text(encoding="utf-8")
    declared = DeclaredText(text, file, lab_config.defaults())
    with pytest.raises(BadExperiment) as refused:
        limited_plan.plan(declared, Needed(tmp_path), 1)
    assert WORDS[name] in str(refused.value)
    assert all(problem.file == file for problem in refused.value.problems)


@pytest.mark.parametrize("name", sorted(WORDS.keys() - {"sweep"}))
def test_it_is_refused_in_words_at_home_too(name: str, tmp_path: Path) -> None:
    text = (TRAPS / f"{name}.yaml").read_text(encoding="utf-8")
    (tmp_path / "experiment.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(BadExperiment) as refused:
        planner.plan_folder(tmp_path)
    assert WORDS[name] in str(refused.value)


def test_what_takes_too_much_is_refused_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (TRAPS / "sweep.yaml").read_text(encoding="utf-8")
    for name, limits, words in (
        ("a", limited_plan.LIMITS._replace(seconds=0.3), "it took more than 0.3 s"),
        ("b", limited_plan.LIMITS._replace(memory=24 << 20), "it took more than 24 MiB of memory"),
    ):
        monkeypatch.setattr(limited_plan, "LIMITS", limits)
        declared = DeclaredText(text, f"{name}/x.yaml", lab_config.defaults())
        with pytest.raises(BadExperiment, match=f"it cannot be planned: {words}; make it smaller"):
            limited_plan.outline(declared)
