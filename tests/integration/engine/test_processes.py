"""Several processes train what one would: the same batches, the same figures to the rounding of
sums, one decision about every save. The processes are real (`one_of_many.py`), stand in two slices
and begin a run; this process goes on with it alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import on_devices
import pytest
from one_of_many import Noted, ask

from engine.model import mesh
from engine.model.processes import Agreement, Place, as_first
from engine.training import checkpoint
from tests.integration.engine.test_mesh import FIFTIETH, FIRST

BATCH = on_devices.CONFIG.train_batch_size
LAST = 9  # step that the processes do together


class Story(NamedTuple):
    """What came of one run."""

    answers: list[dict[str, Any]]  # of each process
    folder: Path  # their checkpoints
    rest: dict[int, float]  # losses of the steps that this process did


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one process with one device."""
    return [metrics.loss for metrics in on_devices.run(tmp_path_factory.mktemp("one"), (1, 1, 1))]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((4, 1), id="four-processes"),
        pytest.param((2, 2), id="two-processes", marks=pytest.mark.slow),
    ],
)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    count, devices = request.param
    together, after = tmp_path_factory.mktemp("together"), tmp_path_factory.mktemp("after")
    answers = ask(
        count,
        slices=2,
        devices=devices,
        folder=str(together),
        mesh=(2, 2, 1),
        config={"checkpoint_seconds": 3600.0},
        disturb=[[1, 1, 3, "day"], [1, count - 1, 7, "term"]],
        layouts=[(2, 2, 1), (1, 4, 1)],
    )
    rest = on_devices.run(after, (1, 1, 1), resume_from=[together / "1"])
    return Story(answers, together / "1", {metrics.step: metrics.loss for metrics in rest})


# ── What one process would have done ─────────────────────────────────────────────────────────


def test_several_processes_together_read_the_batches_of_one(story: Story) -> None:
    whole = Noted()
    for step in (1, 2, 3):
        whole.rows(step, np.arange(BATCH))
        read: dict[int, str] = {}
        for answer in story.answers:
            read |= {int(row): digest for row, digest in answer["read"][str(step)].items()}
        assert read == whole.rows_of[step]


def test_each_process_reads_its_own_rows_and_no_others(story: Story) -> None:
    share = BATCH // len(story.answers)
    for rank, answer in enumerate(story.answers):
        for rows in answer["read"].values():
            assert [int(row) for row in rows] == list(range(rank * share, (rank + 1) * share))


def test_several_processes_and_then_one_learn_what_one_learns(
    story: Story, alone: list[float]
) -> None:
    losses = {int(step): loss for step, loss in story.answers[0]["losses"].items()} | story.rest
    assert list(losses) == list(range(1, len(alone) + 1))
    assert losses[1] == pytest.approx(alone[0], rel=FIRST)
    for step, loss in losses.items():
        assert loss == pytest.approx(alone[step - 1], rel=FIFTIETH), step


def test_every_process_yields_the_same_metrics(story: Story) -> None:
    assert story.answers[0]["devices"] == 4
    assert all(answer["losses"] == story.answers[0]["losses"] for answer in story.answers)


# ── One decision ─────────────────────────────────────────────────────────────────────────────


def test_one_clock_and_one_signal_have_all_processes_save_the_same_steps(story: Story) -> None:
    # What comes when step 3 is known finds step 4 under way, and all do it after the next one.
    for answer in story.answers:
        assert answer["saved"] == [5, LAST]
        assert max(map(int, answer["losses"])) == LAST
    assert checkpoint.latest(story.folder) == LAST
    assert (story.folder / "5").is_dir()


def test_a_checkpoint_of_several_processes_is_one_that_another_number_goes_on_from(
    story: Story,
) -> None:
    assert min(story.rest) == LAST + 1


def test_the_first_processs_view_decides(story: Story) -> None:
    assert all(answer["first"] == [0, 7] for answer in story.answers)


def test_a_single_process_gets_its_want_at_once() -> None:
    agree = Agreement(mesh.make(on_devices.mesh_of((1, 1, 1))))
    assert agree(True, False) == (True, False)
    assert agree(False, False) == (False, False)
    assert as_first([3, 0]) == [3, 0]


# ── Slices ───────────────────────────────────────────────────────────────────────────────────


def test_a_slice_is_of_neighbours() -> None:
    places = [Place(rank, 6, "127.0.0.1:1", slices=3) for rank in range(6)]
    assert [place.slice for place in places] == [0, 0, 1, 1, 2, 2]


def test_data_alone_crosses_slices(story: Story) -> None:
    for answer in story.answers:
        laid_out, refused = answer["layouts"]
        each = len(story.answers) // 2
        slices = [[process // each for [[process]] in row] for row in laid_out["processes"]]
        assert slices == [[0, 0], [1, 1]]
        assert refused["refused"] == (
            "data 1 cannot be spread over 2 slices, and the other axes stay inside of one; make "
            "data a multiple of 2"
        )


@dataclass(frozen=True)
class Chip:
    """What a mesh is made of on a TPU."""

    id: int
    slice_index: int
    coords: tuple[int, int, int]
    platform: str = "tpu"
    device_kind: str = "TPU v4"
    process_index: int = 0
    core_on_chip: int = 0


def test_the_slices_of_a_tpu_lie_one_after_the_other_along_data() -> None:
    chips = [Chip(i, slice_index=i % 2, coords=(i // 2 % 2, i // 4, 0)) for i in range(8)]
    laid_out = mesh.make(on_devices.mesh_of((4, 1, 2)), chips).devices
    assert np.vectorize(lambda chip: chip.slice_index)(laid_out).tolist() == [
        [[[0, 0]]],
        [[[0, 0]]],
        [[[1, 1]]],
        [[[1, 1]]],
    ]
    with pytest.raises(mesh.BadMesh, match="over 2 slices"):
        mesh.make(on_devices.mesh_of((1, 4, 2)), chips)
