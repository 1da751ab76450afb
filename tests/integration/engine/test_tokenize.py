"""Of `test_tokenize.py` what needs a process, a socket or a compilation."""

import os
import subprocess
import sys

from engine.data import tokenize


def test_importing_the_tokenizer_needs_no_heavy_library() -> None:
    code = (
        "import sys, engine.data.lab_texts, engine.data.tokenize, engine.data.documents\n"
        "heavy = {'jax', 'tensorstore', 'tokenizers', 'pyarrow', 'zstandard'}\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_bpe_is_the_same_for_any_number_of_threads() -> None:
    code = (
        "from engine.data.tokenize import train_bpe\n"
        "from pathlib import Path\n"
        f"text = Path({tokenize.__file__!r}).read_text()\n"
        "lines = text.splitlines(keepends=True)\n"
        "print(train_bpe(lines, 2000).sha256)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for threads in ("1", "5")
    }
    assert len(digests) == 1
