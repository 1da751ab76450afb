"""Shared state is changed by adding and taking away one's own."""

import pytest

from tests.reports.github.github_lab import (
    Changed,
    begin,
    fail,
    is_complete,
    open_issue,
    turn,
)
from tests.scenarios.lab import Lab


def beside(lab: Lab, names: list[str], *, when: str) -> list[str]:
    """Grace adds labels at the moment of such a request of the bot's. Returns the moments."""
    done: list[str] = []

    def at_this_moment(method: str, path: str) -> None:
        if path.partition("/issues/1/labels")[1] and method == when and not done:
            done.append(path)
            mine = [label for label in lab.labels(1) if label.startswith("experiment: ")]
            lab.sandbox.set_labels("grace", 1, [*mine, *names])

    lab.sandbox.faults = Changed(at_this_moment)
    return done


@pytest.mark.parametrize("when", ["GET", "POST", "DELETE", "PUT"])
def test_labeler_763_a_label_that_somebody_adds_meanwhile_stays(lab: Lab, when: str) -> None:
    begin(lab)
    done = beside(lab, ["priority: high"], when=when)
    lab.trainer.pace = None
    turn(lab, 420, 5)
    mine = [label for label in lab.labels(1) if label.startswith("experiment: ")]
    assert mine == ["experiment: done"]
    assert ("priority: high" in lab.labels(1)) == bool(done)


def test_triagebot_1537_a_label_of_the_first_second_stays(lab: Lab) -> None:
    open_issue(lab)
    lab.sandbox.set_labels("grace", 1, ["help wanted"])
    lab.settle()
    assert lab.labels(1) == ["experiment: wishlist", "help wanted"]


def test_pr_size_labeler_101_labels_of_other_bots_stay_and_the_old_one_goes(lab: Lab) -> None:
    begin(lab)
    lab.sandbox.add_labels("grace", 1, ["size/XL", "needs-review"])
    lab.trainer.pace = None
    turn(lab, 420, 5)
    assert lab.labels(1) == ["experiment: done", "needs-review", "size/XL"]


def test_eng_pipes_585_a_label_that_somebody_has_removed_is_removed_once(lab: Lab) -> None:
    begin(lab)
    lab.sandbox.remove_label("grace", 1, "experiment: running")
    lab.trainer.pace = None
    turn(lab, 420, 5)
    assert is_complete(lab)


def test_a_list_of_labels_that_lags_leaves_no_second_label(lab: Lab) -> None:
    begin(lab)
    fail(lab, "GET", r"/issues/1/labels$", 200, '[{"name": "experiment: planned", "id": 1}]')
    lab.trainer.pace = None
    turn(lab, 420, 5)
    assert is_complete(lab)
