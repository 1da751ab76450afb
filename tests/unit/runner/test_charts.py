"""The chart of loss curves: what it shows, that it is drawn the same each time, and offline."""

import struct
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from runner.publish import charts
from tests import synthetic

TITLE = "Does a warmer learning rate pay off in 16 steps?"


def runs_of(plan, by_run=synthetic.PLAIN):
    return [synthetic.run(plan, arm, seed, by_run[arm, seed]) for arm, seed in plan.runs()]


@pytest.fixture(scope="module")
def spec():
    plan = synthetic.plan()
    return charts.loss_curves(plan, runs_of(plan))


def subtitle(spec):
    return " ".join(spec["title"]["subtitle"])


def test_each_seed_has_a_thin_line_and_each_arm_a_bold_one(spec):
    seeds = {(row["arm"], row["seed"]) for row in spec["datasets"]["seeds"]}
    assert seeds == set(synthetic.plan().runs())
    assert {row["arm"] for row in spec["datasets"]["means"]} == {"slow", "fast"}


def test_the_bold_line_is_the_mean_over_seeds_at_the_tokens_seen():
    plan = synthetic.plan(seeds=[0, 1])
    curves = [[(1, 5.0), (2, 4.0)], [(1, 6.0), (2, 3.0)]]
    runs = [synthetic.run(plan, "fast", n, 2.0, curve=curve) for n, curve in enumerate(curves)]
    means = charts.loss_curves(plan, runs)["datasets"]["means"]
    assert [(row["tokens"], row["loss"]) for row in means] == [(4096.0, 5.5), (8192.0, 3.5)]


def test_runs_whose_points_lie_at_different_steps_are_averaged_between_them():
    plan = synthetic.plan(seeds=[0, 1])
    curves = [[(1, 5.0), (3, 3.0)], [(1, 5.0), (2, 4.5), (3, 4.0), (4, 1.0)]]
    runs = [synthetic.run(plan, "fast", n, 2.0, curve=curve) for n, curve in enumerate(curves)]
    means = charts.loss_curves(plan, runs)["datasets"]["means"]
    assert [row["loss"] for row in means] == [5.0, 4.25, 3.5]


def test_a_run_that_did_not_finish_is_marked_and_left_out_of_the_mean():
    plan = synthetic.plan(seeds=[0, 1])
    runs = [
        synthetic.run(plan, "fast", 0, 2.0, curve=[(1, 5.0), (2, 4.0), (3, 3.0)]),
        synthetic.run(plan, "fast", 1, None, curve=[(1, 7.0), (2, 6.0)], state="failed"),
    ]
    spec = charts.loss_curves(plan, runs)
    assert [row["loss"] for row in spec["datasets"]["means"]] == [5.0, 4.0, 3.0]
    (mark,) = spec["datasets"]["marks"]
    assert (mark["mark"], mark["tokens"], mark["loss"]) == ("cross", 8192.0, 6.0)
    assert "did not finish, left out of its arm’s mean" in subtitle(spec)


def test_a_loss_that_ran_away_does_not_press_the_others_flat():
    plan = synthetic.plan(seeds=[0])
    runs = [
        synthetic.run(plan, "fast", 0, 2.0, curve=[(1, 5.0), (2, 4.0)]),
        synthetic.run(plan, "slow", 0, None, curve=[(1, 5.0), (2, 1e30)], state="failed"),
    ]
    spec = charts.loss_curves(plan, runs)
    assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"][1] < 6
    assert "1 point lies above the frame" in subtitle(spec)


def test_names_at_the_ends_of_lines_never_overlap():
    arms = {f"arm{n}": synthetic.planned_arm() for n in range(9)}
    plan = synthetic.plan(arms=arms, seeds=[0])
    runs = [
        synthetic.run(plan, arm, 0, 2.0, curve=[(1, 5.0), (2, 2.0 + 0.01 * n)])
        for n, arm in enumerate(arms)
    ]
    spec = charts.loss_curves(plan, runs)
    low, high = spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    heights = sorted(row["loss"] for row in spec["datasets"]["names"])
    pixels = [(b - a) / (high - low) * charts.HEIGHT for a, b in pairwise(heights)]
    assert min(pixels) >= charts.NAME_HEIGHT - 0.01
    assert low <= heights[0]
    assert heights[-1] <= high


def test_the_chart_says_that_the_job_reported_it(spec):
    assert subtitle(spec) == (
        "training loss in nats per token · bold: mean over 3 seeds, thin: each seed · "
        "as reported by the job"
    )


def test_validation_curves_are_a_panel_below_where_there_are_some(spec):
    plan = synthetic.plan(seeds=[0, 1])
    runs = [
        synthetic.run(plan, "fast", n, 2.0).model_copy(
            update={"validation": ((8, 3.0 + n, 0.1), (16, 2.0, None))}
        )
        for n in (0, 1)
    ]
    found = charts.loss_curves(plan, runs)
    _, panel = found["vconcat"]
    assert panel["title"]["text"] == "validation: bits per byte · scored by the lab"
    means = found["datasets"]["scored_means"]
    assert [(row["tokens"], row["loss"]) for row in means] == [(32768.0, 3.5), (65536.0, 2.0)]
    assert "vconcat" not in spec
    assert charts.png(found).startswith(b"\x89PNG")


def test_equal_input_gives_equal_bytes(spec):
    plan = synthetic.plan()
    again = charts.loss_curves(plan, runs_of(plan))
    assert again == spec
    assert charts.png(again) == charts.png(spec)
    assert charts.svg(again) == charts.svg(spec)


def test_the_picture_has_two_pixels_for_each_of_its_own(spec):
    data = charts.png(spec)
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert 1200 <= width <= 1400
    assert 700 <= height <= 900


def test_nothing_is_fetched_to_draw_it(spec):
    drawing = charts.svg(spec)
    assert "href" not in drawing
    assert "@import" not in drawing


@pytest.mark.parametrize(
    "title",
    [
        "<script>alert(1)</script> & co",
        "tab\tbell\x07 \u202egnp.exe",
        "x" * 500,
        "{{ 1 }} ''\"",
        "",
    ],
)
def test_a_strangers_title_is_drawn_as_text(title):
    plan = synthetic.plan(title=title, seeds=[0])
    spec = charts.loss_curves(plan, [synthetic.run(plan, "fast", 0, 2.0)])
    drawing = charts.svg(spec)
    elements = {element.tag.split("}")[1] for element in ElementTree.fromstring(drawing).iter()}
    assert "script" not in elements
    assert len(spec["title"]["text"]) <= 2
    assert charts.png(spec).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "curve",
    [[(1, 5.5)], [(1, 0.0), (2, 0.0)], [(1, -1.0), (2, -2.0)], [(1, 1e39), (2, 1e-300)]],
)
def test_odd_curves_are_drawn_too(curve):
    plan = synthetic.plan(seeds=[0])
    spec = charts.loss_curves(plan, [synthetic.run(plan, "fast", 0, 2.0, curve=curve)])
    assert "fast" in charts.svg(spec)


def test_without_any_curve_it_says_so():
    plan = synthetic.plan()
    assert "No curve was reported." in charts.svg(charts.loss_curves(plan, []))
