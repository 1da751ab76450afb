"""What a made-up lab decides: the files of its folder."""

from pathlib import Path

from runner.schema import lab_config

KINDS = lab_config.defaults().devices
NO_TRACKS = "".join(f"  {name}: null\n" for name in lab_config.defaults().tracks)


def decide(root: Path, **files: str) -> None:
    """Write files of the lab in whose checkout `root` is: `tracks="…"`, `devices="…"`."""
    (root / lab_config.FOLDER).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / lab_config.FOLDER / f"{name}.yml").write_text(text)


def one_track(name: str, target: float, tokens: int, sha256: str) -> str:
    """A tracks.yml with one track, on the text that ships with the lab."""
    return (
        f"data: {{it: {{source: lab-2026-11, validation_sha256: {sha256}, "
        f"eval_tokens: {tokens}}}}}\ntracks:\n{NO_TRACKS}"
        f"  {name}: {{title: One track, kind: target, data: it, target: {target}, "
        "cost: model, spread: 0.01}\n"
    )
