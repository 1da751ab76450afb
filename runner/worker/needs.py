"""What steps need of the machine on which they run, looked for before anything trains. As a program
(`python -m runner.worker.needs FILE`) it loads the tasks of lm_eval that FILE names, and writes to
it why some could not be loaded."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from runner.planning import planner
from runner.schema.record import Plan
from runner.spec.benchmarks import DATA, lm_eval_tasks
from runner.store import artifacts
from runner.store.store import Store

MAY_TAKE = 1800.0  # seconds to load the data of one step


def missing(store: Store, plan: Plan) -> list[str]:
    """A sentence for each step that is still to be made and cannot be. Prints what a step will do
    without."""
    found = []
    for name, step in plan.steps.items():
        if step.do != "benchmark" or not (asked := lm_eval_tasks(step.config)):
            continue
        if artifacts.find(store, step.store, step.fingerprint, check=False) is not None:
            continue
        config, folder = step.config, planner.kept_folder(step)
        data = folder and config.get("data") and str(store.fetch(folder) / DATA)
        models = [plan.steps[model].config.get("model") or {} for model in step.inputs["models"]]
        context = min((model.get("seq_len", 1 << 30) for model in models), default=1 << 30)
        own = config.get("own_tasks", {})
        why = _tried({"asked": asked, "own": own, "data": data, "context": context})
        told = [f"{task}: {words}" for task, words in why.items()]
        print(*(f"{name} will not ask {one}" for one in told), sep="\n", flush=True)
        if len(why) == len(asked) and not config["tasks"]:
            words = "no task of lm_eval can be asked here, so nothing was trained"
            mend = "repair the task, fill the cache of `datasets` on this machine, or bring `data`"
            found.append(f"{name}: {words}: {'; '.join(told)}; {mend}")
    return found


def _tried(asked: dict[str, Any]) -> dict[str, str]:
    """{task: why it could not be loaded}, from a process that imports lm_eval."""
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as file:
        json.dump(asked, file)
        file.flush()
        command = [sys.executable, "-m", "runner.worker.needs", file.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAY_TAKE)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it ended"])[-1]
            return dict.fromkeys(asked["asked"], last[:500])
        file.seek(0)
        found = json.load(file)
    assert isinstance(found, dict)
    return found


def main(file: Path) -> None:
    """Replace the file's question by the answer."""
    from runner.worker.scores import lm_eval_tasks as of_lm_eval

    said = json.loads(file.read_text())
    data = Path(said["data"]) if said["data"] else None
    _, why = of_lm_eval.loaded(said["asked"], own=said["own"], data=data, context=said["context"])
    file.write_text(json.dumps(why))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
