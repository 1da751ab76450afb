"""The commands that the documentation shows, typed by a newcomer in a clone, whose experiments are
cut short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented import WRITTEN, blocks, copied

RUN = {page: [b for b in blocks(page) if not b.not_run] for page in WRITTEN}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [page for page in WRITTEN if RUN[page]], ids=lambda page: page.name
)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    clone = copied(tmp_path / "regatta")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in RUN[page]:
        for line in block.commands:
            if line in ("make .venv/ready", ". .venv/bin/activate"):
                continue  # this environment is it
            for declared in clone.glob("experiments/*/experiment.yaml"):
                shorter = re.sub(r"(num_train_steps: )\d+", r"\g<1>8", declared.read_text())
                declared.write_text(shorter)
            ended = subprocess.run(
                line, shell=True, cwd=clone, env=environment, capture_output=True, text=True
            )
            assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
