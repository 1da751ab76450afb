"""Which training is likely next, so that JAX is imported for it before it begins."""

from pathlib import Path

import pytest

from runner.planning import planner
from runner.schema.job_reports import Isolation
from runner.store.store import Store
from runner.worker.step_process import Training
from runner.worker.task_groups import trainings_after
from tests.decided import KINDS

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


def test_the_built_in_training_after_the_text_is_known_with_its_cache(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = planner.plan_folder(EXPERIMENTS / "small-run")
    assert trainings_after(store, plan, "bubblewrap") == {
        "tokenize": Training(KINDS["cpu"], str(store.local("cache/xla")))
    }


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("bubblewrap", {}), ("own machine", {"tokenize": Training(KINDS["cpu"], "")})],
)
def test_own_code_is_waited_for_only_outside_of_a_box_and_has_no_cache(
    tmp_path: Path, isolation: Isolation, expected: dict[str, Training]
) -> None:
    plan = planner.plan_folder(EXPERIMENTS / "gated-attention")
    own = {name: step for name, step in plan.steps.items() if name == "tokenize" or step.own}
    plan = plan.model_copy(update={"steps": own})
    assert trainings_after(Store(tmp_path / "store"), plan, isolation) == expected
