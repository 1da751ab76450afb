"""What a search takes of the declarations that its proposer writes: experiments with one arm that
may be compared with the baseline, and cost no more. Pure, apart from reading the folder's files.

A proposer's text is data. It is parsed, and nothing of it runs but the lab's own steps, unless the
baseline itself has own code.
"""

from dataclasses import replace
from pathlib import Path

from runner.lib.problems import BadExperiment, Problem
from runner.planning import planner
from runner.planning.planned_steps import asked, uploads
from runner.schema.lab_config import LabConfig
from runner.schema.record import Plan
from runner.spec import declaration

STUDIES = ("ladder", "ablate", "isoflop", "tune", "speedrun", "preregistration")


def plan(text: str, folder: Path, seeds: tuple[int, ...], lab: LabConfig) -> Plan:
    """The plan of a declaration in this folder, trained with these seeds in the place of its own.
    Raises BadExperiment."""
    file = f"{folder}/{declaration.FILE_NAME}"
    document = declaration.read(text, file)
    declaration.drafted(document, lab).complaints.end()
    found = [key for key in STUDIES if document.value.get(key) is not None]
    if found:
        words = f"a search compares single arms; take `{found[0]}` out"
        raise BadExperiment([document.problem((found[0],), words)])
    graph = declaration.drafted(
        replace(document, value={**document.value, "seeds": list(seeds)}), lab
    )
    planned = planner.make_plan(graph, folder, called=folder.as_posix())
    if len(planned.arms) != 1 or planned.data is None:
        words = f"a search compares single arms, and this has {len(planned.arms)}; write one"
        raise BadExperiment([Problem(file, document.line(("arms",)), "arms", words)])
    return planned


def misfit(baseline: Plan, trial: Plan, compute: float) -> str | None:
    """Why a trial cannot be compared with the baseline, as a clause; None if it can. Its runs may
    cost `compute` times the FLOPs of the baseline's."""
    if (trial.data, trial.eval) != (baseline.data, baseline.eval):
        return "`data` and `eval` must stay as in the baseline, or scores cannot be compared"
    if trial.resources != baseline.resources:
        return "`resources` must stay as in the baseline"
    if _own(trial) and not _own(baseline):
        return "the baseline has no own code, so a trial has none"
    if uploads(trial.steps) or asked(trial.steps):
        return "a trial sends nothing out of the lab"
    mine, usual = ({step.do for step in one.steps.values()} for one in (trial, baseline))
    if more := mine - usual:
        return f"a trial has the steps of the baseline, and no `{min(more)}`"
    (one,), (base,) = trial.arms.values(), baseline.arms.values()
    if one.model_flops is None or base.model_flops is None:
        if one.tokens > compute * base.tokens:
            return f"a run reads {one.tokens:,} tokens, and a baseline's {base.tokens:,}"
        return None
    if one.model_flops > compute * base.model_flops:
        return (
            f"a run costs {one.model_flops / base.model_flops:.3f} times the FLOPs of a baseline's "
            f"run, and {compute:g} is the most; make the model smaller, or train for fewer steps"
        )
    return None


def _own(plan: Plan) -> bool:
    return bool(plan.own_code()) or plan.compiled
