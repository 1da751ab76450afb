"""What a pull request is told of the results that it brings. Pure."""

from bot.messages import templating
from bot.model.escape import code, prose
from runner.analysis import speedrun_file
from runner.history.results_entries import EnteredFile, EntryRecord, Found
from runner.lib.format import many

MAX_SHOWN = 100  # findings in a comment


def title(entry: EntryRecord) -> str:
    """What was found, in one line."""
    if not entry.files:
        return "there are none any more"
    unread = sum(bool(file.problem) for file in entry.files)
    wrong = sum(len(file.impossible) for file in entry.files)
    runs = sum(len(file.runs) for file in entry.files)
    parts = [f"{many(unread, 'file')} cannot be taken"] if unread else []
    parts += [f"{many(wrong, 'figure')} cannot be"] if wrong else []
    return "; ".join(parts) or f"{many(runs, 'run')}, nothing impossible"


def body(entry: EntryRecord) -> str:
    """What the files of a head say and what was found in them."""
    if not entry.files:
        return (
            f"### 📋 Results: {title(entry)}\n\n`{entry.commit[:12]}` takes its results file back, "
            "so that there is nothing to check and nothing that a merge would bring to the board. "
            "What was said of earlier commits is folded above, and a push with a file is checked "
            "anew."
        )
    mark = "📋" if entry.stands else "❌"
    lines = [f"### {mark} Results: {title(entry)}", "", f"At `{entry.commit[:12]}`:", ""]
    lines += [f"- `{code(file.path)}`: {_of_file(file)}" for file in entry.files]
    found = [(file, one) for file in entry.files for one in file.found]
    if found:
        lines += ["", "| File | Run | Field | What cannot be |", "| --- | --- | --- | --- |"]
        lines += [_row(file, one) for file, one in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        lines += ["", f"… and {len(found) - MAX_SHOWN} more."]
    merged = (
        "Merged, its rows appear as self-reported: nothing that could be counted again contradicts "
        "them, and the lab has run nothing of it."
    )
    lines += ["", merged if entry.stands else "A corrected push is checked anew."]
    return "\n".join(lines)


def folded(entry: EntryRecord, newest: EntryRecord) -> str:
    """What is left of an older head's comment."""
    summary = (
        f"Results at <code>{entry.commit[:12]}</code>, since then checked at "
        f"<code>{newest.commit[:12]}</code>"
    )
    return templating.folded(summary, body(entry))


def _of_file(file: EnteredFile) -> str:
    if file.problem:
        return f"it cannot be taken: {prose(file.problem, 400)}"
    runs = file.runs
    figures = ", ".join(f"{run.bpb:.4f}" for run in runs[:5]) + (", …" if len(runs) > 5 else "")
    return f"{many(len(runs), 'run')}, {figures} bits per byte, each its author's word"


def _row(file: EnteredFile, one: Found) -> str:
    odd = " (odd)" if one.kind == "odd" else ""
    words = prose(one.words, 300)
    field = speedrun_file.RULES[one.rule].field
    return f"| `{code(file.path, 80)}` | {one.run + 1} | `{field}` | {words}{odd} |"
