"""Reads prompts from a file of the experiment's folder."""

from pathlib import Path

from engine.data.lab_texts import BadText, read_file
from runner.lib import bounds
from runner.spec.model_steps import MAX_PROMPT, MAX_PROMPTS

MAX_BYTES = 4 << 20  # of a file


def read(name: str, folder: Path) -> list[str]:
    """The prompts in the file, each on a line: as it is in a .txt, as {"prompt": …} in a .jsonl.
    Empty lines are skipped. Raises BadText with file and line."""
    if not name.endswith((".txt", ".jsonl")):
        raise BadText(f"{name} is neither .txt (a prompt on each line) nor .jsonl; rename it")
    content = read_file(name, folder)
    if len(content) > MAX_BYTES:
        raise BadText(f"{name} has {len(content):,} bytes, and {MAX_BYTES:,} is the most")
    found = []
    for number, line in enumerate(content.decode().split("\n"), 1):
        text = line.removesuffix("\r")
        if not text.strip():
            continue
        if name.endswith(".jsonl"):
            text = _prompt(text, f"{name}, line {number}")
        if not 0 < len(text) <= MAX_PROMPT:
            raise BadText(
                f"{name}, line {number} has a prompt of {len(text):,} characters; it must be 1 to "
                f"{MAX_PROMPT:,}"
            )
        found.append(text)
    if not 0 < len(found) <= MAX_PROMPTS:
        raise BadText(f"{name} has {len(found):,} prompts; it must be 1 to {MAX_PROMPTS:,}")
    return found


def _prompt(line: str, where: str) -> str:
    try:
        value = bounds.plain(line.encode())
    except ValueError as error:
        raise BadText(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(text := value.get("prompt"), str):
        raise BadText(f'{where} is not {{"prompt": "…"}}; write each prompt so')
    return text
