"""The commands that the documentation shows, typed by a newcomer in a clone, whose experiments are
cut short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented import WRITTEN, blocks, copied

SMALLER = {
    **{"num_train_steps": 8, "train_batch_size": 2},
    **{"hidden_dim": 16, "intermediate_dim": 32, "num_layers": 1},
}
DAILY = {"README.md", "run-a-lab.md"}  # what a newcomer reads first
RUN = {page: [b for b in blocks(page) if not b.not_run] for page in WRITTEN}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.name in DAILY else pytest.mark.slow)
        for page in WRITTEN
        if RUN[page]
    ],
    ids=lambda page: page.name,
)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    clone = copied(tmp_path / "regatta")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in RUN[page]:
        for line in block.commands:
            if line in ("make .venv/ready", ". .venv/bin/activate"):
                continue  # this environment is it
            if run := re.match(r"regatta run (\S+)", line):
                declared = clone / run[1] / "experiment.yaml"
                text = declared.read_text()
                for name, value in SMALLER.items():
                    text = re.sub(rf"\b{name}: \d+", f"{name}: {value}", text)
                declared.write_text(re.sub(r"\bseeds: \[.*?\]", "seeds: [0]", text))
            ended = subprocess.run(
                line, shell=True, cwd=clone, env=environment, capture_output=True, text=True
            )
            assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
