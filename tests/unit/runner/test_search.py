"""Searches on bowls whose minimum is known."""

import math
import random

import pytest

from runner.lib import search
from runner.lib.search import At, Space, State

GRID = {"learning_rate": [1.0, 2.0, 4.0, 8.0, 16.0], "weight_decay": [0.0, 0.1, 0.2]}


def space(how: search.How = "coordinate", trials: int = 100) -> Space:
    return Space(how, GRID, (0, 0), (100, 101), trials)


def bowl(at: At, seed: int, noise: float = 0.001) -> float:
    """The best is (3, 1)."""
    off = random.Random(f"{at} {seed}").gauss(0, noise)
    return 2 + 0.1 * (at[0] - 3) ** 2 + 0.05 * (at[1] - 1) ** 2 + off


def ended(of: Space, noise: float = 0.001) -> tuple[State, int]:
    losses: dict[tuple[At, int], float] = {}
    while (found := search.state(of, losses)).next is not None:
        losses[found.next] = bowl(*found.next, noise)
    return found, len(losses)


@pytest.mark.parametrize("how", ["coordinate", "random"])
def test_a_search_finds_the_minimum(how: search.How) -> None:
    found, trials = ended(space(how))
    assert found.best == (3, 1)
    assert space(how).settings(found.best) == {"learning_rate": 8.0, "weight_decay": 0.1}
    assert trials <= (30 if how == "random" else 26)


def test_it_stops_when_no_move_is_better_by_more_than_the_noise() -> None:
    found, _ = ended(space())
    assert found.why == "no move of a single key is better by more than the noise"
    assert found.noise == pytest.approx(0.001 / math.sqrt(2), rel=0.5)
    # Where all is noise, it stays where it began.
    flat, trials = ended(space(), noise=50.0)
    assert trials < 15
    assert flat.noise is not None
    assert flat.noise > 10


def test_it_ends_when_the_budget_is_spent_and_no_setting_is_tried_by_halves() -> None:
    found, trials = ended(space(trials=7))
    assert (found.why, trials) == ("the budget is spent", 6)
    assert found.best == (2, 0)


def test_what_is_next_follows_from_the_trials_in_any_order() -> None:
    losses: dict[tuple[At, int], float] = {}
    seen = []
    while (at := search.state(space(), losses).next) is not None:
        seen.append(at)
        shuffled = [*losses.items()]
        random.Random(1).shuffle(shuffled)
        assert search.state(space(), dict(shuffled)).next == at
        losses[at] = bowl(*at)
    assert len({*seen}) == len(seen)


def test_what_diverges_is_never_the_best() -> None:
    losses: dict[tuple[At, int], float] = {}
    while (at := (found := search.state(space(), losses)).next) is not None:
        losses[at] = math.inf if at[0][0] >= 2 else bowl(*at)
    assert found.best == (1, 1)
    nothing: dict[tuple[At, int], float] = {}
    while (at := (found := search.state(space(), nothing)).next) is not None:
        nothing[at] = math.inf
    assert found.best == (0, 0)


def test_a_round_is_the_start_and_the_neighbours_of_each_key() -> None:
    assert space().one_round == 6  # both keys begin at an end of their values
    middle = Space("coordinate", GRID, (2, 1), (100, 101), 100)
    assert middle.one_round == 10
