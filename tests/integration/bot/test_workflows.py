"""Of `test_workflows.py` what needs a process, a socket or a compilation."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.bot.test_workflows import CHOICES, workflows


@pytest.mark.parametrize("choice", CHOICES)
def test_zizmor_finds_nothing(tmp_path: Path, choice: str) -> None:
    zizmor = shutil.which("zizmor") or shutil.which("zizmor", path=Path(sys.executable).parent)
    if zizmor is None:
        pytest.skip("zizmor is not installed; `make test` installs it")
    for path, text in workflows(choice).items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = subprocess.run(
        [zizmor, "--offline", "--no-progress", "--persona", "pedantic", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "No findings to report" in found.stdout + found.stderr
