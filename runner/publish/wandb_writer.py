"""The child that writes runs for W&B: `python -m runner.publish.wandb_writer <file>`.

It does what the lines of the file say (`runner.publish.wandb_lines`), and waits for more until a
line says that this is the end. With WANDB_MODE=offline it writes below WANDB_DIR, without a key and
without network; with `online` it sends each figure at once, and notes where W&B shows the runs in
`<file>.url`. It is a child so that W&B's threads, hooks and errors stay out of the lab.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wandb

SEND_EVERY = 5.0  # seconds between two requests for a run
WAIT = 0.5  # seconds between two looks for new lines


def main(file: Path) -> None:
    """Follow the file to its end."""
    runs: dict[str, Any] = {}
    for line in _lines(file):
        match line:
            case {"open": id}:
                runs[id] = _opened(line)
                _note(file.with_name(f"{file.name}.url"), runs[id])
            case {"log": id, "step": step, "figures": figures}:
                runs[id].log(figures, step=step, commit=True)
            case {"summary": id, "figures": figures}:
                runs[id].summary.update(figures)
            case {"close": id, "code": code}:
                runs.pop(id).finish(exit_code=code)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """The whole lines, as they are written."""
    with file.open(encoding="utf-8") as opened:
        begun = ""
        while True:
            begun += opened.readline()
            if not begun.endswith("\n"):
                time.sleep(WAIT)
                continue
            line, begun = json.loads(begun), ""
            if "end" in line:
                return
            yield line


def _opened(line: dict[str, Any]) -> Any:
    return wandb.init(
        id=line["open"],
        group=line["group"],
        name=line["name"],
        config=line["config"],
        reinit="create_new",
        settings=wandb.Settings(
            host="regatta",  # not this machine's name
            console="off",
            silent=True,
            symlink=False,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_file_stream_transmit_interval=SEND_EVERY,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
    )


def _note(file: Path, run: Any) -> None:
    """Where W&B shows the execution: its runs are a group of their project."""
    if not file.exists() and not run.offline and run.project_url:
        file.write_text(f"{run.project_url}/groups/{run.group}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
