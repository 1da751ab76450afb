"""Of `test_planning.py` what needs a process, a socket or a compilation."""

import json
import subprocess
import sys
from pathlib import Path

LARGE = """\
title: A model of 154 million parameters
data: {source: text.txt}
model: {hidden_dim: 512, intermediate_dim: 1792, num_layers: 6, num_heads: 8, seq_len: 4096,
        vocab_size: 128256}
train: {train_batch_size: 1, num_train_steps: 10, learning_rate: 3e-4}
eval: {tokens: 4096}
resources: {kind: h100}
"""


def test_the_command_plans_the_large_model_without_importing_jax(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(LARGE)
    (tmp_path / "text.txt").write_text("A line of a long enough text.\n" * 6000)
    code = (
        "import sys\n"
        "from bot.cli.main import main\n"
        "sys.argv = ['regatta', 'plan', *sys.argv[1:]]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "--json", "--store", str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
    )
    (arm,) = json.loads(done.stdout)["arms"].values()
    assert arm["parameters"] == 154_147_328
    assert arm["forward_flops_per_token"] == 227_868_672
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "runner" in loaded
    assert not {"jax", "jaxlib", "flax", "optax", "orbax", "ray", "tensorstore"} & loaded
    assert not (tmp_path / "store").exists()
