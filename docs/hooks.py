"""What mkdocs does differently here: a link from a page to a file of the repository becomes the
file's name, since the site has no such file; a picture that is linked so comes along."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PICTURE = re.compile(r"(!\[[^\]]*\]\()\.\./(tests/[^)]+/([^/)]+\.png))(\))")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+(?!\.)([^)#]+)[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    for page in (ROOT / "docs").glob("*.md"):
        for _, path, name, _ in PICTURE.findall(page.read_text()):
            files.append(File.generated(config, f"images/{name}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return LINK.sub(outside, PICTURE.sub(r"\1images/\3\4", markdown))


def outside(link: re.Match[str]) -> str:
    words, path = link.groups()
    if (ROOT / "docs" / path).exists():
        return link.group(0)
    return f"{words} (`{path}`)" if path.rstrip("/") not in words else f"`{words}`"
