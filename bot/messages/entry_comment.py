"""The comment on a pull request that brings results of its own. Pure."""

from bot.messages import templating
from bot.model.escape import code, prose
from runner.analysis import speedrun_file
from runner.history.results_entries import EnteredFile, EntryRecord, Found
from runner.lib.format import many

MAX_SHOWN = 100  # findings in a comment


def title(entry: EntryRecord) -> str:
    """What was found, in one line."""
    if not entry.files:
        return "the file was removed"
    unread = sum(bool(file.problem) for file in entry.files)
    wrong = sum(len(file.impossible) for file in entry.files)
    runs = sum(len(file.runs) for file in entry.files)
    parts = [f"{many(unread, 'file')} cannot be read"] if unread else []
    parts += [f"{many(wrong, 'number')} impossible"] if wrong else []
    return "; ".join(parts) or f"{many(runs, 'run')}, nothing impossible"


def body(entry: EntryRecord) -> str:
    """What the files of a head say and what was found in them."""
    if not entry.files:
        return (
            f"### 📋 Results: {title(entry)}\n\nCommit `{entry.commit[:12]}` removes the results "
            "file. A merge now would add no rows to the leaderboard. If you push a file again, the "
            "bot checks it. Its comments on earlier commits are folded above."
        )
    mark = "📋" if entry.stands else "❌"
    lines = [f"### {mark} Results: {title(entry)}", "", f"Commit `{entry.commit[:12]}`:", ""]
    lines += [f"- `{code(file.path)}`: {_of_file(file)}" for file in entry.files]
    found = [(file, one) for file in entry.files for one in file.found]
    if found:
        lines += ["", "| File | Run | Field | Why it is impossible |", "| --- | --- | --- | --- |"]
        lines += [_row(file, one) for file, one in found[:MAX_SHOWN]]
    if len(found) > MAX_SHOWN:
        lines += ["", f"… and {len(found) - MAX_SHOWN} more."]
    merged = (
        "The lab found no contradiction in the numbers that it can check. It has run none of this "
        "itself. After a merge, the rows appear on the leaderboard as self-reported."
    )
    lines += ["", merged if entry.stands else "Push a correction, and the bot checks it."]
    return "\n".join(lines)


def folded(entry: EntryRecord, newest: EntryRecord) -> str:
    """What is left of an older head's comment."""
    summary = (
        f"Results of commit <code>{entry.commit[:12]}</code>; a newer check is of "
        f"<code>{newest.commit[:12]}</code>"
    )
    return templating.folded(summary, body(entry))


def _of_file(file: EnteredFile) -> str:
    if file.problem:
        return f"cannot be read: {prose(file.problem, 400)}"
    runs = file.runs
    figures = ", ".join(f"{run.bpb:.4f}" for run in runs[:5]) + (", …" if len(runs) > 5 else "")
    return f"{many(len(runs), 'run')}, {figures} bits per byte, reported by the author"


def _row(file: EnteredFile, one: Found) -> str:
    odd = " (odd)" if one.kind == "odd" else ""
    words = prose(one.words, 300)
    field = speedrun_file.RULES[one.rule].field
    return f"| `{code(file.path, 80)}` | {one.run + 1} | `{field}` | {words}{odd} |"
