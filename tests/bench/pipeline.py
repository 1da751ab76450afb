"""How long the stages of a pipeline wait, beside what the simulator says: `python -m
tests.bench.pipeline`. Two stages train on two pinned cores, in a process each, with every schedule
and several numbers of parts. The simulator gets the times that were measured of each chunk and of
the transport. With more stages than cores it is simulated only. It wants a machine where nothing
else runs, takes five minutes, and writes `results/pipeline.json`, `pipeline.md` and `pipeline.png`,
and the table into `docs/pipelines.md`. `--draw` only draws and writes again what was measured."""

import argparse
import json
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.config.schedules import (
    KINDS,
    SCHEDULES,
    Action,
    Schedule,
    Simulated,
    Span,
    Times,
    chunks_of,
    needs,
    simulate,
    summed,
    table,
)
from tests.bench.cpu import _busy, machine, wait_for_quiet

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = Path(__file__).parent / "results", ROOT / "docs/pipelines.md"
STAGES, PARTS, ROUNDS = 2, (2, 4, 8), 9
MORE = ((4, 8), (4, 16), (8, 32))  # stages and parts that are simulated only
CLOSE = 0.25  # how far a measured bubble may be from the simulated one, as a fraction of it
LEAST = 0.020  # seconds of an action; shorter ones drown in what starts them
MODEL = {
    **{"hidden_dim": 256, "intermediate_dim": 896, "num_layers": 4, "num_heads": 4},
    **{"seq_len": 256, "vocab_size": 256},
}
ROWS = 4  # of a part
MARK = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


# ── A stage ──────────────────────────────────────────────────────────────────────────────────


def stage(rank: int, port: int, asked: dict[str, Any]) -> None:
    """One of two processes, on a core of its own. Prints the spans of each round."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    from engine.config.schema import ModelConfig, TrainConfig
    from engine.data.sampling import Sampler
    from engine.model import processes
    from engine.model.decoder import Decoder
    from engine.pipeline.pipeline import Pipeline
    from engine.pipeline.train import read_batch
    from engine.training.heap import keep_heap

    keep_heap()
    processes.join(processes.Place(rank, STAGES, f"127.0.0.1:{port}"))
    model = ModelConfig.model_validate(asked["model"])
    text = np.random.Generator(np.random.Philox(7)).integers(0, 256, 400_000, np.uint8)
    found = []
    for schedule in SCHEDULES:
        for parts in asked["parts"]:
            rows = asked["rows"] * parts
            config = TrainConfig(
                train_batch_size=rows,
                num_train_steps=10,
                learning_rate=0.001,
                gradient_accumulation_steps=parts,
            )
            sampler = Sampler(text, 3, rows, model.seq_len)
            pipeline = Pipeline(Decoder(model), config, STAGES, schedule, model.seq_len)
            states = {n: one.draw(jax.random.key(3)) for n, one in pipeline.here.items()}
            given, rounds, peak = read_batch(pipeline, config, sampler, 1), [], 0
            pipeline.measured(states, given)  # compiles
            pipeline.gradients(states, given)
            for number in range(asked["rounds"]):
                multihost_utils.sync_global_devices(f"{schedule} {parts} {number}")
                through = pipeline.gradients(states, given)
                rounds.append(
                    [(*span.action, span.start, span.end) for span in through.spans[rank]]
                )
                peak = through.peaks[rank]
            found.append({"schedule": schedule, "parts": parts, "rounds": rounds, "peak": peak})
            multihost_utils.sync_global_devices(f"{schedule} {parts}")
            if rank == 0:
                print(f"{schedule}, {parts} parts", file=sys.stderr, flush=True)
    processes.leave()
    print(json.dumps(found))


def measure(rounds: int, parts: Sequence[int], model: dict[str, Any], rows: int) -> Any:
    """What both stages have measured, by schedule and parts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = json.dumps({"rounds": rounds, "parts": list(parts), "model": model, "rows": rows})
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
        "NPROC": "1",
    }
    command = [sys.executable, "-m", "tests.bench.pipeline", "--asked", asked, "--port", str(port)]
    started = [
        subprocess.Popen([*command, "--stage", str(rank)], env=environment, stdout=subprocess.PIPE)
        for rank in range(STAGES)
    ]
    answers = [json.loads(one.communicate()[0].splitlines()[-1]) for one in started]
    return list(zip(*answers, strict=True))


# ── Figures ──────────────────────────────────────────────────────────────────────────────────


def figures(both: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one schedule and number of parts: the bubble of each round, the mean times, and what the
    simulator makes of these."""
    schedule, parts = both[0]["schedule"], both[0]["parts"]
    rounds = [
        summed([[_span(*x) for x in of["rounds"][n]] for of in both])
        for n in range(len(both[0]["rounds"]))
    ]
    times = _times(rounds, schedule)
    found = simulate(table(schedule, STAGES, parts), times)
    mean = statistics.fmean(one.bubble for one in rounds)
    return {
        **{"schedule": schedule, "parts": parts, "bubbles": [one.bubble for one in rounds]},
        "measured": mean,
        "simulated": found.bubble,
        "difference": mean / found.bubble - 1,
        "seconds": statistics.fmean(one.seconds for one in rounds),
        "simulated_seconds": found.seconds,
        "peaks": [of["peak"] for of in both],
        "counted_peaks": list(found.peaks),
        "milliseconds": [{kind: 1000 * x for kind, x in of.items()} for of in times.of_chunk],
        "transport_milliseconds": 1000 * times.transport,
        "between_milliseconds": 1000 * times.between,
    }


def _span(kind: Any, chunk: int, part: int, start: float, end: float) -> Span:
    return Span(Action(kind, chunk, part), start, end)


def _times(rounds: Sequence[Simulated], schedule: Schedule) -> Times:
    """Means over all rounds: of an action; from the end of what a stage waited for, elsewhere, to
    the start of its action; and where it did not wait, from the end of its own last action."""
    chunks, spent = STAGES * chunks_of(schedule), defaultdict[tuple[str, int], list[float]](list)
    waited, between = [0.0], [0.0]
    for one in rounds:
        ends = {span.action: span.end for row in one.spans for span in row}
        ends |= {x._replace(kind="backward"): end for x, end in ends.items() if x.kind == "inputs"}
        for stage, row in enumerate(one.spans):
            free = math.inf  # a stage's first action comes after nothing
            for span in row:
                spent[span.action[:2]].append(span.end - span.start)
                needed = needs(span.action, chunks)
                there = max((ends[x] for x in needed if x.chunk % STAGES != stage), default=0.0)
                if there > free:
                    waited.append(span.start - there)
                elif free < math.inf:
                    between.append(span.start - free)
                free = span.end

    def mean(kind: str, chunk: int) -> float:
        return statistics.fmean(spent[kind, chunk] or [0.0])

    of_chunk = [{kind: mean(kind, chunk) for kind in KINDS} for chunk in range(chunks)]
    return Times(of_chunk, *(statistics.fmean(x[1:] or x) for x in (waited, between)))


def with_more(
    rows: Sequence[dict[str, Any]], schedule: Schedule, stages: int, parts: int
) -> Simulated:
    """A schedule on more stages, simulated with the times of the first and the last stage of two,
    the medians over all that was measured of chunks of that size; those between take as long as the
    first."""
    chunks = chunks_of(schedule)
    alike = [row for row in rows if chunks_of(row["schedule"]) == chunks]

    def median(chunk: int, kind: str) -> float:
        found = [row["milliseconds"][chunk][kind] / 1000 for row in alike]
        return statistics.median([x for x in found if x] or [0.0])

    first, last = ({kind: median(chunk, kind) for kind in KINDS} for chunk in (0, -1))
    transport, between = (
        statistics.median(row[f"{name}_milliseconds"] for row in rows) / 1000
        for name in ("transport", "between")
    )
    times = Times([first] * (stages * chunks - 1) + [last], transport, between)
    return simulate(table(schedule, stages, parts), times)


def larger(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All schedules on more stages."""
    found = []
    for stages, parts in MORE:
        for schedule in SCHEDULES:
            one = with_more(rows, schedule, stages, parts)
            found.append(
                {
                    **{"schedule": schedule, "stages": stages, "parts": parts},
                    **{"simulated": one.bubble, "peaks": list(one.peaks)},
                }
            )
    return found


# ── What is written ──────────────────────────────────────────────────────────────────────────


def measured_table(found: dict[str, Any]) -> str:
    head = (
        "| schedule | parts | bubble, measured | simulated | difference | step | kept |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n"
    )
    return head + "\n".join(
        f"| {row['schedule']} | {row['parts']} | {row['measured']:.1%} | {row['simulated']:.1%} | "
        f"{row['difference']:+.0%} | {row['seconds']:.2f} s | {', '.join(map(str, row['peaks']))} |"
        for row in found["two_stages"]
    )


def simulated_table(found: dict[str, Any]) -> str:
    sizes = list(dict.fromkeys((row["stages"], row["parts"]) for row in found["more_stages"]))
    head = "".join(f" {stages} stages, {parts} parts |" for stages, parts in sizes)
    lines = [f"| schedule |{head}", "| --- |" + " ---: |" * len(sizes)]
    for schedule in SCHEDULES:
        cells = [row["simulated"] for row in found["more_stages"] if row["schedule"] == schedule]
        lines.append(f"| {schedule} | " + " | ".join(f"{x:.1%}" for x in cells) + " |")
    return "\n".join(lines)


def how(found: dict[str, Any]) -> str:
    """One sentence about the measurement."""
    load, others = found["load"], found["others"]
    far = max(found["two_stages"], key=lambda row: abs(row["difference"]))
    inside = sum(abs(row["difference"]) <= CLOSE for row in found["two_stages"])
    return (
        f"Means of {found['rounds']} rounds. An action takes {found['shortest']:.0f} ms or more, "
        f"sending {found['transport']:.1f} ms, and a stage begins its next action "
        f"{found['between']:.1f} ms after the last. The load average was {load[0]:.1f} before and "
        f"{load[1]:.1f} after (the stages alone make 2), and others used {others:.0%} of the two "
        f"cores. {inside} of {len(found['two_stages'])} measured bubbles are within 25 % of the "
        f"simulated ones; the farthest is {far['difference']:+.0%} ({far['schedule']}, "
        f"{far['parts']} parts)."
    )


def written(found: dict[str, Any]) -> None:
    """Write the table, the chart, and both into the page."""
    from tests.bench.charts import pipeline, png

    found["more_stages"] = larger(found["two_stages"])

    parts = {"table": measured_table, "more": simulated_table, "how": how}
    text = {name: function(found) for name, function in parts.items()}
    (RESULTS / "pipeline.md").write_text("\n\n".join(text.values()) + "\n")
    (RESULTS / "pipeline.png").write_bytes(png(pipeline(found)))
    page = MARK.sub(lambda at: f"{at[1]}\n{text[at[2]]}\n\n{at[3]}", PAGE.read_text())
    PAGE.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    for name in ("--stage", "--port"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--asked", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.asked:
        return stage(options.stage, options.port, options.asked)
    if not options.draw:
        wait_for_quiet()
        load, busy, began = os.getloadavg()[0], _busy(), time.monotonic()
        ours = sum(os.times()[:4])
        both = measure(options.rounds, PARTS, MODEL, ROWS)
        others = _busy() - busy - (sum(os.times()[:4]) - ours)
        rows = [figures(one) for one in both]
        lengths = [x for row in rows for of in row["milliseconds"] for x in of.values() if x]
        found = {
            "machine": machine("jax", "jaxlib"),
            "load": [load, os.getloadavg()[0]],
            "others": max(0.0, others) / (STAGES * (time.monotonic() - began)),
            "rounds": options.rounds,
            "model": MODEL,
            "tokens_of_a_part": ROWS * MODEL["seq_len"],
            "shortest": min(lengths),
            **{
                name: statistics.median(row[f"{name}_milliseconds"] for row in rows)
                for name in ("transport", "between")
            },
            "two_stages": rows,
        }
    else:
        found = json.loads((RESULTS / "pipeline.json").read_text())
    written(found)
    (RESULTS / "pipeline.json").write_text(json.dumps(found, indent=1) + "\n")
    print(measured_table(found), how(found), sep="\n\n")
    if found["shortest"] < 1000 * LEAST:
        print("Some actions took less than 20 ms: make ROWS larger.")
    return None


if __name__ == "__main__":
    main()
