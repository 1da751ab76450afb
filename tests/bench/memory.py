"""How far the plan's bytes of a device are from XLA's: `python -m tests.bench.memory`. Compiles one
step of ten models and meshes for TPUs that need not exist, by libtpu's own compiler
(`runner.planning.compile_check`), and allocates nothing. Needs libtpu (`pip install
'regatta[tpu]'`) and ten minutes of two cores. Writes `results/memory.json` and `memory.md`, which
`tests/unit/engine/test_memory.py` holds the formula to."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import jax

from engine.config import memory
from engine.config.schema import ComputeConfig, ModelConfig, TrainConfig
from runner.planning.compile_check import check
from runner.schema import lab_config
from runner.schema.devices import Slice

RESULTS = Path(__file__).parent / "results"
VOCABULARY = 128_256
LLAMA_8B = {
    **{"hidden_dim": 4096, "intermediate_dim": 14336, "num_layers": 32, "num_heads": 32},
    **{"num_kv_heads": 8, "seq_len": 4096, "vocab_size": VOCABULARY},
}
QWEN_32B = {
    **{"hidden_dim": 5120, "intermediate_dim": 27648, "num_layers": 64, "num_heads": 40},
    **{"num_kv_heads": 8, "seq_len": 4096, "vocab_size": VOCABULARY, "qk_norm": "learned"},
}
DENSE_1B = {
    **{"hidden_dim": 2048, "intermediate_dim": 8192, "num_layers": 24, "num_heads": 16},
    **{"seq_len": 2048, "vocab_size": 50304},
}
MIXTURE_17B = {
    **{"hidden_dim": 2560, "num_layers": 24, "num_heads": 20, "num_kv_heads": 5, "seq_len": 4096},
    **{"vocab_size": 32064},
    "moe": {"num_experts": 128, "top_k": 8, "expert_dim": 640, "shared_dim": 2560},
}
MIXTURE_129B = {
    **{"hidden_dim": 5120, "num_layers": 48, "num_heads": 40, "num_kv_heads": 10, "seq_len": 4096},
    **{"vocab_size": VOCABULARY},
    "moe": {"num_experts": 128, "top_k": 8, "expert_dim": 1280, "shared_dim": 5120},
}
# Name, model, batch, mesh, remat and accumulation, each on as many v5p as the mesh has devices.
CASES: tuple[tuple[str, dict[str, Any], int, dict[str, int], str, int], ...] = (
    ("8B", LLAMA_8B, 64, {"fsdp": 64}, "block", 1),
    ("8B", LLAMA_8B, 256, {"fsdp": 64}, "block", 1),
    ("8B", LLAMA_8B, 256, {"fsdp": 64}, "block", 4),
    ("8B", LLAMA_8B, 64, {"fsdp": 16, "tensor": 4}, "block", 1),
    ("8B", LLAMA_8B, 64, {"data": 4, "fsdp": 16}, "block", 1),
    ("1.8B", DENSE_1B, 64, {"data": 8}, "block", 1),
    ("1.8B", DENSE_1B, 32, {"fsdp": 8}, "none", 1),
    ("32B", QWEN_32B, 1024, {"fsdp": 128, "tensor": 2}, "block", 1),
    ("17B of experts", MIXTURE_17B, 64, {"fsdp": 64}, "block", 1),
    ("17B of experts", MIXTURE_17B, 64, {"fsdp": 16, "expert": 4}, "block", 1),
    ("129B of experts", MIXTURE_129B, 1024, {"fsdp": 128, "tensor": 2, "expert": 4}, "block", 1),
    ("129B of experts", MIXTURE_129B, 1024, {"fsdp": 256, "expert": 4}, "block", 1),
)
MODELS = {case[0]: case[1] for case in CASES}


def main() -> None:
    if importlib.util.find_spec("libtpu") is None:
        sys.exit("libtpu is not installed; pip install 'regatta[tpu]'")
    kind, rows = lab_config.defaults().devices["v5p"], []
    for name, model, batch, mesh, remat, parts in CASES:
        asked = configured(model, batch, mesh, remat, parts)
        devices = asked[2].mesh.devices
        found = check(*asked, Slice("v5p", devices, kind))
        row = {
            "model": name,
            "devices": devices,
            **{"batch": batch, "mesh": mesh, "remat": remat, "parts": parts},
            "xla": found.arguments + found.temporaries,
        }
        rows.append(row)
        print(f"{line(row, memory.footprint(*asked, 'tpu').total)}", flush=True)
    said = {"jax": jax.__version__, "kind": "v5p", "rows": rows}
    (RESULTS / "memory.json").write_text(json.dumps(said, indent=2) + "\n")
    (RESULTS / "memory.md").write_text(table(rows))


def configured(
    model: dict[str, Any], batch: int, mesh: dict[str, int], remat: str, parts: int
) -> tuple[ModelConfig, TrainConfig, ComputeConfig]:
    """What a case trains, and how."""
    train = {"train_batch_size": batch, "num_train_steps": 10, "learning_rate": 0.001}
    compute = {"mesh": mesh, "remat": remat}
    return (
        ModelConfig.model_validate(model),
        TrainConfig.model_validate({**train, "gradient_accumulation_steps": parts}),
        ComputeConfig.model_validate(compute),
    )


def table(rows: list[dict[str, Any]]) -> str:
    """The rows with what the formula says now, as Markdown."""
    head = (
        "| model | v5p | batch | mesh | remat | parts | by XLA | by formula | difference |\n"
        "| --- | --: | --: | --- | --- | --: | --: | --: | --: |\n"
    )
    keys = ("batch", "mesh", "remat", "parts")
    return head + "".join(
        line(
            row,
            memory.footprint(
                *configured(MODELS[row["model"]], *(row[k] for k in keys)), "tpu"
            ).total,
        )
        for row in rows
    )


def line(row: dict[str, Any], counted: int) -> str:
    mesh = " × ".join(f"{axis} {size}" for axis, size in row["mesh"].items())
    cells = (
        *(row["model"], row["devices"], row["batch"], mesh, row["remat"], row["parts"]),
        *(memory.size(row["xla"]), memory.size(counted), f"{counted / row['xla'] - 1:+.1%}"),
    )
    return f"| {' | '.join(map(str, cells))} |\n"


if __name__ == "__main__":
    main()
