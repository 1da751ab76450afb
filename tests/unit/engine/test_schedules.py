"""Schedules of a pipeline are tables, and the simulator's figures are those of the formulas."""

import pytest

from engine.config.schedules import (
    CHUNKS,
    SCHEDULES,
    Action,
    Schedule,
    Times,
    chunks_of,
    fastest,
    one_part,
    simulate,
    table,
    together,
)

SIZES = [(2, 4), (4, 8), (4, 4), (8, 32)]  # stages and parts


def alike(schedule: Schedule, stages: int, **seconds: float) -> Times:
    """Each stage has as much to do, whatever its chunks are."""
    chunks = chunks_of(schedule)
    each = {"forward": 1.0, "inputs": 1.0, "weights": 1.0} | seconds
    return Times.alike(stages * chunks, **{kind: x / chunks for kind, x in each.items()})


@pytest.mark.parametrize(("stages", "parts"), SIZES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_part_goes_once_through_every_chunk_both_ways(
    schedule: Schedule, stages: int, parts: int
) -> None:
    found = table(schedule, stages, parts)
    back = ("inputs", "weights") if schedule == "zero-bubble" else ("backward",)
    for stage, row in enumerate(found):
        chunks = range(stage, stages * chunks_of(schedule), stages)
        wanted = {
            Action(kind, chunk, part)
            for kind in ("forward", *back)
            for chunk in chunks
            for part in range(parts)
        }
        assert set(row) == wanted
        assert len(row) == len(wanted)
        for chunk in chunks:  # so that sums do not depend on the schedule
            for kind in back:
                parts_of = [x.part for x in row if x.kind == kind and x.chunk == chunk]
                assert parts_of == list(range(parts))
    assert sorted(together(found, range(stages))) == sorted(x for row in found for x in row)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_simulated_bubble_and_peak_are_those_of_the_formulas(p: int, m: int) -> None:
    """Narayanan et al. 2021, section 2.2, and Qi et al. 2023, table 2, here as the fraction of all
    time and with F = B = W."""
    v = CHUNKS
    bubbles = {
        "gpipe": (p - 1) / (m + p - 1),
        "1f1b": (p - 1) / (m + p - 1),
        "interleaved": (p - 1) / (v * m + p - 1),
        "zero-bubble": (p - 1) / (3 * m + p - 1),
    }
    ahead = [2 * (p - s - 1) + (v - 1) * p for s in range(p)]
    peaks = {
        "gpipe": [m] * p,
        "1f1b": [min(m, p - s) for s in range(p)],
        "interleaved": [min(m * v, n + 1) for n in ahead],  # of half a stage each
        "zero-bubble": [min(m, p)] * p,
    }
    for schedule in SCHEDULES:
        found = simulate(table(schedule, p, m), alike(schedule, p))
        assert found.bubble == pytest.approx(bubbles[schedule]), schedule
        assert list(found.peaks) == peaks[schedule], schedule


def test_a_bubble_of_unequal_parts_is_that_of_the_formula() -> None:
    # idle: 1F1B (p−1)(F+B+W), ZB-H1 (p−1)(F+B−W)
    p, m, f, b, w = 4, 12, 1.0, 1.4, 0.8
    work = m * (f + b + w)
    for schedule, idle in (("1f1b", f + b + w), ("zero-bubble", f + b - w)):
        times = alike(schedule, p, forward=f, inputs=b, weights=w)  # type: ignore[arg-type]
        found = simulate(table(schedule, p, m), times)  # type: ignore[arg-type]
        assert found.seconds == pytest.approx(work + (p - 1) * idle)


def test_transport_delays_only_what_is_on_another_stage() -> None:
    slow = alike("1f1b", 2)._replace(transport=0.5)
    found = simulate(table("1f1b", 2, 1), slow)
    assert found.seconds == pytest.approx(6 + 2 * 0.5)
    assert simulate(one_part("interleaved", 2), alike("interleaved", 2)).seconds == pytest.approx(6)


def test_what_lies_between_two_actions_delays_each_but_the_first_and_no_one_who_waits() -> None:
    quick = simulate(table("gpipe", 2, 2), alike("gpipe", 2))
    late = simulate(table("gpipe", 2, 2), alike("gpipe", 2)._replace(between=0.25))
    first, last = late.spans
    assert [span.start for span in first[:2]] == [0.0, quick.spans[0][0].end + 0.25]
    assert last[0].start == quick.spans[1][0].start, "it waited, and so begins at once"
    assert late.bubble > quick.bubble


def test_the_fastest_is_chosen_and_of_equals_the_simplest() -> None:
    best = fastest(SCHEDULES, 4, 8, lambda schedule: alike(schedule, 4))
    assert list(best)[:2] == ["zero-bubble", "interleaved"]
    assert [*fastest(SCHEDULES[:2], 4, 8, lambda schedule: alike(schedule, 4))] == ["1f1b", "gpipe"]
    # Where sending takes longest, chunks that are sent twice as often lose.
    sent = fastest(SCHEDULES, 2, 4, lambda schedule: alike(schedule, 2)._replace(transport=2.0))
    assert [*sent][-1] == "interleaved"


def test_stages_that_wait_for_each_other_are_refused() -> None:
    forward, backward = Action("forward", 0, 0), Action("backward", 0, 0)
    after = Action("forward", 1, 0), Action("backward", 1, 0)
    with pytest.raises(ValueError, match="wait for each other"):
        simulate(((backward, forward), after), alike("1f1b", 2))
    with pytest.raises(ValueError, match="multiple of 4 stages"):
        table("interleaved", 4, 6)
