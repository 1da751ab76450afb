"""The commands that the documentation shows, as a reader would type them."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md", ROOT / "SECURITY.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]

MADE = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "node_modules")
MADE_AT_THE_TOP = ("store", "site", "build")

# A block without a language is for a terminal. This before it says why no test runs it.
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


@dataclass(frozen=True)
class Block:
    """Lines for a terminal, as they are on a page."""

    page: Path
    commands: tuple[str, ...]
    not_run: str | None  # why no test runs it


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are for a terminal, in order."""
    found: list[Block] = []
    inside: list[str] | None = None
    language, mark = "", None
    for line in page.read_text().splitlines():
        words = line.strip()
        if words.startswith("```") and inside is None:
            language, inside = words[3:], []
        elif words == "```" and inside is not None:
            if not language:
                found.append(Block(page, commands(inside), mark))
            inside, mark = None, None
        elif inside is not None:
            inside.append(words)
        elif words:  # the line before a block
            marked = NOT_RUN.fullmatch(words)
            mark = marked[1] if marked else None
    return found


def commands(lines: list[str]) -> tuple[str, ...]:
    """What is typed: lines that go on are joined, and what is said of them left out."""
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    typed = [re.sub(r"(^|\s+)# .*", "", line).strip() for line in whole]
    return tuple(line for line in typed if line)


def copied(to: Path) -> Path:
    """The repository's files at `to`, as a clone has them."""

    def made(folder: str, names: list[str]) -> set[str]:
        patterns = (*MADE, *(MADE_AT_THE_TOP if Path(folder) == ROOT else ()))
        return shutil.ignore_patterns(*patterns)(folder, names)

    return Path(shutil.copytree(ROOT, to, ignore=made, symlinks=True))
