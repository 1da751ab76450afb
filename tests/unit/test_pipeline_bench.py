"""The bench of pipelines: what it makes of spans, and that the page has what it measured."""

import json

import pytest

from engine.config.schedules import SCHEDULES, Schedule, Times, chunks_of, simulate, table
from tests.bench import pipeline


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_spans_that_are_as_simulated_have_the_simulated_bubble(schedule: Schedule) -> None:
    chunks = 2 * chunks_of(schedule)
    times = Times.alike(chunks, 0.01, 0.002, forward=0.03, inputs=0.04, weights=0.02)
    done = simulate(table(schedule, 2, 4), times)
    both = [
        {
            **{"schedule": schedule, "parts": 4, "peak": done.peaks[number]},
            "rounds": [[(*span.action, span.start, span.end) for span in row]] * 3,
        }
        for number, row in enumerate(done.spans)
    ]
    found = pipeline.figures(both)
    assert found["measured"] == pytest.approx(found["simulated"])
    assert found["peaks"] == found["counted_peaks"]
    more = pipeline.with_more([found], schedule, 4, 8)
    assert len(more.spans) == 4


def test_the_page_has_the_figures_that_were_measured() -> None:
    found = json.loads((pipeline.RESULTS / "pipeline.json").read_text())
    page = pipeline.PAGE.read_text()
    assert all(row["peaks"] == row["counted_peaks"] for row in found["two_stages"])
    for text in (pipeline.measured_table, pipeline.simulated_table, pipeline.how):
        assert text(found) in page, "run python -m tests.bench.pipeline --draw"
