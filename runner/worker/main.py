"""The program of a job: `python -m runner.worker.main <attempt's folder> [<SHA-256 of spec.json>]`.

The folder is a path, or gs://bucket/prefix/work/<attempt>; the part before `work/` is the jobs'
store, which has no records. The program does what the folder's `spec.json` says, and with the
digest, no other one. It talks to nobody, and writes reports (`runner.schema.job_reports`) below
`out/` for the lab. Besides it writes only to its lease, the shared outputs of steps and the cache.
First it starts its lease: the second of two workers on one attempt exits at once. Before its last
report it ends every process that it has started.
"""

import hashlib
import os
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path

from runner.isolation import bubblewrap
from runner.lib import process_tree
from runner.lib.canonical_json import to_json
from runner.lib.problems import BadExperiment
from runner.planning import lockfile
from runner.planning.planner import code_folder
from runner.schema.job_reports import (
    ANOTHER_SPEC,
    ANOTHER_WORKER,
    PREEMPTED,
    AttemptReport,
    AttemptSpec,
)
from runner.store.artifacts import MakerLost, MakingFailed, sentence
from runner.store.leases import AttemptLease
from runner.store.store import Remote, Store, local
from runner.worker.metrics_chunks import write_whole
from runner.worker.step_process import NOT_ISOLATED, print_to

MOST_LOG = 16 << 20  # bytes of the log that a bucket gets


def main(place: Path | str, spec_sha256: str | None = None) -> int:
    """Run the attempt in the folder `place`. Returns the exit code."""
    process_tree.die_with_parent(signal.SIGKILL)  # a job does not outlive its Ray
    process_tree.adopt_orphans()
    os.umask(0o022)
    store, name = _opened(place)
    lease = AttemptLease(store, name)
    if not lease.start({"pid": os.getpid(), "host": socket.gethostname(), "job": name}):
        print(f"{name} was begun by another worker, or withdrawn; leaving it alone.")
        return ANOTHER_WORKER
    spec = store.read(f"work/{name}/spec.json") or b""
    if spec_sha256 not in (None, hashlib.sha256(spec).hexdigest()):
        print(f"{place}/spec.json is not the one that was claimed; not doing it.", file=sys.stderr)
        lease.release()
        return ANOTHER_SPEC
    folder = store.at(f"work/{name}")
    log = local(folder / "out") / "log.txt"  # Ray's own logs end with Ray
    log.parent.mkdir(parents=True, exist_ok=True)
    print_to(log)
    with lease.beating():
        code = _attempt(store, folder, spec)
        _leave(folder / "out")
    lease.release()
    return code


def _opened(place: Path | str) -> tuple[Store, str]:
    """The jobs' store, and the name of the attempt's folder in it."""
    if isinstance(place, str) and place.startswith("gs://"):
        root, _, name = place.rpartition("/work/")
        return Store(root, make=False), name
    folder = Path(place).resolve()
    return Store(folder.parents[1]), folder.name


def _leave(out: Path | Remote) -> None:
    """Upload what is left on this machine to the bucket, or remove it; on disk, does nothing."""
    if isinstance(out, Remote):
        with (local(out) / "log.txt").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - MOST_LOG))
            (out / "log.txt").create(log.read())
        shutil.rmtree(local(out).parent, ignore_errors=True)


def _attempt(store: Store, folder: Path | Remote, written: bytes) -> int:
    """Run the attempt and write its final report. Returns the exit code."""
    code, report, why = 0, "finished", ""
    try:
        spec = AttemptSpec.model_validate_json(written)
        if spec.folder != folder.name:
            raise MakingFailed(f"spec.json is of {spec.folder} and lies in {folder.name}")
        _steps(store, spec)
    except MakerLost as error:
        print(f"{error}; the next attempt goes on from there", file=sys.stderr)
        code, report, why = PREEMPTED, "preempted", sentence(error)
    except Exception as error:
        traceback.print_exc()
        code, report, why = 1, "failed", sentence(error)
    process_tree.end_descendants(signal.SIGKILL)
    said = AttemptReport(nonce=folder.name.rpartition("-")[2], why=why)
    write_whole(folder / "out" / f"{report}.json", to_json(said.model_dump(mode="json")))
    return code


def _steps(store: Store, spec: AttemptSpec) -> None:
    """Make the plan's steps. Raises MakingFailed, and MakerLost if they lost their machines."""
    from runner.worker import executor, needs  # imports TensorStore, which counts threads

    plan, isolation = spec.plan, spec.isolation
    if (plan.own_code() or plan.compiled) and not isolation:
        raise MakingFailed(NOT_ISOLATED[""])
    if isolation == "bubblewrap" and (words := bubblewrap.probe()):
        raise MakingFailed(f"{words} Nothing of the experiment's own was run.")
    if plan.compiled:
        try:
            lockfile.check(store.fetch(code_folder(plan)), isolated=isolation == "bubblewrap")
        except (BadExperiment, bubblewrap.CannotIsolate) as error:
            raise MakingFailed(str(error)) from error
    if wanting := needs.missing(store, plan):
        raise MakingFailed("; ".join(wanting))
    limits = bubblewrap.Limits(seconds=spec.limit_seconds or bubblewrap.USUAL.seconds)
    terms = executor.Terms(isolation, limits)
    executor.run(store, plan, code_folder(plan), spec.attempt.rpartition(".")[0], terms)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
