"""What is believed of a job's files, and what is refused and why."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.lib import untrusted_files
from runner.lib.canonical_json import to_json
from runner.schema import job_reports
from runner.schema.job_reports import AttemptReport, Refused, StepMetrics, read_report

NONCE = "0123456789abcdef"
GOOD = {"nonce": NONCE, "why": "no room", "receipt": {"jax": "1"}}
LINE = {"step": 1, "loss": 5.5, "grad_norm": 1.0, "learning_rate": 0.1, "tokens": 64}


def read(folder: Path, refused: list[str]) -> Iterator[StepMetrics]:
    return job_reports.read_metrics(folder, 10_000, refused)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work" / "x.t1-aa" / "out"
    folder.mkdir(parents=True)
    return folder


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def test_a_claim_of_the_attempt_is_read_and_an_absent_one_is_none(out: Path) -> None:
    path = write(out / "failed.json", GOOD)
    told = AttemptReport(nonce=NONCE, why="no room", receipt={"jax": "1"})
    assert read_report(path, AttemptReport, NONCE) == told
    assert read_report(out / "other.json", AttemptReport, NONCE) is None
    assert read_report(out / "no" / "such.json", AttemptReport, NONCE) is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({**GOOD, "bpb": 1.0}, "bpb: Extra inputs"),
        ({**GOOD, "why": 16}, "why: "),
        ({**GOOD, "receipt": {"jax": 1}}, "receipt.jax: "),
        ({**GOOD, "why": "x" * 501}, "why: "),
        ({**GOOD, "nonce": "f" * 16}, "wrong nonce"),
        ({"why": "no room"}, "Field required"),
        (b"[" * 100_000, "Invalid JSON"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"", "Invalid JSON"),
        (b'{"nonce":"' + b"x" * job_reports.MOST_BYTES + b'"}', "larger than"),
    ],
)
def test_a_claim_of_another_form_is_refused_with_its_place_and_reason(
    out: Path, value: object, why: str
) -> None:
    path = write(out / "failed.json", value)
    with pytest.raises(Refused, match=why) as refusal:
        read_report(path, AttemptReport, NONCE)
    assert str(refusal.value).startswith("x.t1-aa/out/failed.json: ")


def test_a_reason_is_short_even_where_a_key_is_long(out: Path) -> None:
    path = write(out / "failed.json", {**GOOD, "k" * 500_000: 1})
    with pytest.raises(Refused) as refusal:
        read_report(path, AttemptReport, NONCE)
    assert len(str(refusal.value)) < 400


def test_no_figure_that_is_not_finite_is_read(out: Path) -> None:
    for value in ("NaN", "Infinity", "-Infinity", "1e999"):
        text = json.dumps(LINE).replace("5.5", value)
        refused: list[str] = []
        write(out / "m" / "000000.jsonl", text.encode())
        assert list(read(out / "m", refused)) == []
        assert "line 1" in refused[0]


def test_only_a_skipped_step_may_lack_its_figures(out: Path) -> None:
    refused: list[str] = []
    nothing = {**LINE, "loss": None, "grad_norm": None, "bpb": None}
    write(out / "m" / "000000.jsonl", {**nothing, "skipped": True})
    write(out / "m" / "000001.jsonl", nothing)
    write(out / "m" / "000002.jsonl", {**LINE, "grad_norm": None})
    write(out / "m" / "000003.jsonl", {**LINE, "skipped": 1})
    [line] = read(out / "m", refused)
    assert (line.loss, line.grad_norm, line.skipped) == (None, None, True)
    assert len(refused) == 3
    assert all("only a skipped step may have no loss or norm" in words for words in refused[:2])
    assert "skipped: Input should be a valid boolean" in refused[2]


def test_the_longest_line_of_metrics_is_no_longer_than_is_counted_on() -> None:
    long = 1.2345678901234567e-300
    line = StepMetrics(
        step=2**31 - 1,
        tokens=2**62,
        tokens_per_second=1.2345678901234567e39,
        **dict.fromkeys(("compile_seconds", "mfu", "grad_norm", "param_norm"), long),
        **dict.fromkeys(("loss", "bpb", "learning_rate"), -long),
    )
    assert len(to_json(line.model_dump(mode="json"))) < job_reports.A_LINE


def test_a_link_a_pipe_and_a_folder_are_no_reports(out: Path) -> None:
    real = write(out / "real.json", GOOD)
    (out / "link.json").symlink_to(real)
    os.mkfifo(out / "pipe.json")
    (out / "folder.json").mkdir()
    (out / "linked").symlink_to(out)
    for name in ("link.json", "pipe.json", "folder.json", "linked/real.json"):
        with pytest.raises(Refused, match=name):
            read_report(out / name, AttemptReport, NONCE)


def test_a_receipt_is_short_words_only(out: Path) -> None:
    write(out / "finished.json", {"nonce": NONCE, "receipt": {"jax": "x" * 501}})
    with pytest.raises(Refused, match="receipt"):
        read_report(out / "finished.json", AttemptReport, NONCE)


def test_chunks_are_read_in_order_and_each_up_to_its_first_bad_line(out: Path) -> None:
    def line(step: int) -> str:
        return json.dumps({**LINE, "step": step})

    write(out / "m" / "000001.jsonl", f"{line(3)}\n{line(4)}\n".encode())
    write(out / "m" / "000000.jsonl", f"{line(1)}\nno\nno\n{line(2)}\n".encode())
    write(out / "m" / "000002.jsonl", b'{"step":' + b"9" * job_reports.MOST_LINE + b"}")
    write(out / "m" / ".000003.jsonl.tmp", line(5).encode())
    refused: list[str] = []
    assert [found.step for found in read(out / "m", refused)] == [1, 3, 4]
    assert len(refused) == 2
    assert refused[0].startswith("x.t1-aa/out/m/000000.jsonl, line 2: ")
    assert "longer than" in refused[1]


def test_a_flood_of_bad_lines_is_one_refusal(out: Path) -> None:
    write(out / "m" / "000000.jsonl", b"\n" * (job_reports.MOST_BYTES - 1))
    refused: list[str] = []
    assert list(read(out / "m", refused)) == []
    assert len(refused) == 1


# ── What stops a careless reader ─────────────────────────────────────────────────────────────


def test_loops_and_odd_names_are_refused_in_words_that_can_be_written(out: Path) -> None:
    (out / "runs").symlink_to("runs")
    with pytest.raises(Refused, match="runs/failed"):
        read_report(out / "runs" / "failed.json", AttemptReport, NONCE)
    odd = Path(os.fsdecode(os.fsencode(out) + b"/9\xff.jsonl"))
    odd.write_bytes(b"no JSON\n")
    refused: list[str] = []
    assert list(read(out, refused)) == []
    assert len(refused) == 1
    assert "9\\xff.jsonl, line 1" in refused[0]
    refused[0].encode()


def test_no_more_metrics_are_read_than_a_run_can_have_to_say(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    real = untrusted_files.open_regular
    monkeypatch.setattr(
        untrusted_files, "open_regular", lambda path: opened.append(path) or real(path)
    )

    def read_16() -> tuple[int, list[str]]:
        opened.clear()
        refused: list[str] = []
        return len(list(job_reports.read_metrics(out / "m", 16, refused))), refused

    line = json.dumps(LINE).encode() + b"\n"
    first = write(out / "m" / "000000.jsonl", line * (job_reports.MOST_BYTES // len(line)))
    for n in range(1, 50):
        (out / "m" / f"{n:06d}.jsonl").hardlink_to(first)
    lines, refused = read_16()
    assert (lines, len(opened), len(refused)) == (80, 1, 1)
    assert "more than 16 steps have to say" in refused[0]
    first.write_bytes(b"no JSON\n" * 1000)  # all of them
    lines, refused = read_16()
    assert (lines, len(opened)) == (0, 6)
    for n in range(50, 100):
        (out / "m" / f"{n:06d}.jsonl").hardlink_to(first)
    lines, refused = read_16()
    assert (lines, opened, len(refused)) == (0, [], 1)
    assert "more files than 16 steps can fill" in refused[0]


def test_bad_files_of_a_long_run_are_named_up_to_a_number(out: Path) -> None:
    for n in range(100):
        write(out / "m" / f"{n:06d}.jsonl", b"no\n")
    refused: list[str] = []
    assert list(read(out / "m", refused)) == []
    assert len(refused) == job_reports.MOST_BAD_CHUNKS + 1
    assert refused[-1].endswith("the rest was not read")


def test_a_speed_that_no_time_can_be_drawn_from_is_refused(out: Path) -> None:
    write(out / "m" / "000000.jsonl", {**LINE, "tokens_per_second": 5e-324})
    refused: list[str] = []
    assert list(read(out / "m", refused)) == []
    assert "tokens_per_second" in refused[0]


def test_a_receipt_of_thousands_of_lines_is_refused(out: Path) -> None:
    write(out / "finished.json", {"nonce": NONCE, "receipt": {str(n): "" for n in range(3_000)}})
    with pytest.raises(Refused, match="receipt"):
        read_report(out / "finished.json", AttemptReport, NONCE)
