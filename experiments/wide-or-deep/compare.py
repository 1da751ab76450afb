"""The arms beside each other, best first."""

import json
from pathlib import Path


def table(config: dict[str, object], inputs: dict[str, Path], out: Path) -> None:
    """Writes `table.md`: bits per byte of each arm, and how far it is behind the best."""
    assert not config
    scores = json.loads((inputs["scores"] / "scores.json").read_text())
    best = min(score["bpb"] for score in scores.values())
    lines = ["| arm | bits per byte | behind |", "| --- | ---: | ---: |"]
    for name, score in sorted(scores.items(), key=lambda item: item[1]["bpb"]):
        lines.append(f"| {name} | {score['bpb']:.4f} | {score['bpb'] - best:.4f} |")
    (out / "table.md").write_text("\n".join(lines) + "\n")
