"""A pull request that brings a `speedrun_results.json` gets a check of it, and a comment. Pure.

Each head has a check of its own: what its files say is a record, and what an audit found in them is
said with the run, the field and the figures. A head that brings none any more, after one that did,
is said once, with a neutral check. When the pull request comes to the default branch, so do its
rows, as self-reported ones.
"""

from collections.abc import Iterator

from bot.model.escape import code, prose
from bot.model.keys import Key
from bot.model.thread import Action, Check, Say, Show, Thread, Write
from runner.analysis import speedrun_file
from runner.history.results_entries import EnteredFile, EntryRecord, Found, Merged

CHECK_NAME = "regatta / entry"
MOST_SHOWN = 100  # findings in a comment


def rules(thread: Thread) -> Iterator[Action]:
    """What should exist on a pull request that enters results."""
    if thread.news:
        yield from _entry(thread)
        yield from _merged(thread)
    for entry in thread.entries:
        key = Key("entry", str(entry.n))
        if key not in thread.said:
            yield Say(key, body(entry))
        if entry is not thread.entries[-1] and key._replace(final=True) not in thread.said:
            yield Show(key, folded(entry, thread.entries[-1]), state="folded", final=True)
        if (check := key._replace(check=True)) not in thread.said:
            yield Check(
                key=check,
                name=CHECK_NAME,
                commit=entry.commit,
                conclusion=_conclusion(entry),
                title=title(entry),
                summary=body(entry),
            )


def _entry(thread: Thread) -> Iterator[Action]:
    # A plan of this head was made of the same finding, after its entry was written down.
    looked = [*(entry.commit for entry in thread.entries[-1:])]
    looked += [plan.commit for plan in thread.plans[-1:]]
    pull = thread.pull()
    if pull is None or not (pull.open or pull.merged) or pull.head in looked:
        return
    found = thread.finding(pull.base, pull.head)
    # What GitHub would not show is not gone.
    known = found.experiment is not None or not found.problems
    if found.entered or (known and thread.entries and thread.entries[-1].files):
        n = thread.entries[-1].n + 1 if thread.entries else 1
        entry = EntryRecord(
            repository=thread.id.repository,
            pull=thread.id.number,
            n=n,
            commit=pull.head,
            at=thread.now,
            files=found.entered,
        )
        yield Write(f"entries/{thread.id}/{n}", entry)


def _merged(thread: Thread) -> Iterator[Action]:
    newest = thread.entries[-1] if thread.entries else None
    if newest is None:
        return
    pull = thread.pull()
    if pull and pull.merged and pull.to_default and pull.head == newest.commit:
        path = f"entries/{thread.id}/merged"
        yield Write(path, Merged(at=thread.now, n=newest.n))


def _conclusion(entry: EntryRecord) -> str:
    if not entry.files:
        return "neutral"
    return "success" if entry.stands else "failure"


# ── Words ────────────────────────────────────────────────────────────────────────────────────


def title(entry: EntryRecord) -> str:
    """What was found, in one line."""
    if not entry.files:
        return "there are none any more"
    unread = sum(bool(file.problem) for file in entry.files)
    wrong = sum(len(file.impossible) for file in entry.files)
    runs = sum(len(file.runs) for file in entry.files)
    parts = [f"{_count(unread, 'file')} cannot be taken"] if unread else []
    parts += [f"{_count(wrong, 'figure')} cannot be"] if wrong else []
    return "; ".join(parts) or f"{_count(runs, 'run')}, nothing impossible"


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
    for file in entry.files:
        lines += [f"- `{code(file.path)}`: {_of_file(file)}"]
    found = [(file, one) for file in entry.files for one in file.found]
    if found:
        lines += ["", "| File | Run | Field | What cannot be |", "| --- | --- | --- | --- |"]
        lines += [_row(file, one) for file, one in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        lines += ["", f"… and {len(found) - MOST_SHOWN} more."]
    if entry.stands:
        lines += [
            "",
            "Merged, its rows appear as self-reported: nothing that could be counted again "
            "contradicts them, and the lab has run nothing of it.",
        ]
    else:
        lines += ["", "A corrected push is checked anew."]
    return "\n".join(lines)


def folded(entry: EntryRecord, newest: EntryRecord) -> str:
    """What is left of an older head's comment."""
    return (
        f"<details><summary>Results at <code>{entry.commit[:12]}</code>, since then checked at "
        f"<code>{newest.commit[:12]}</code></summary>\n\n{body(entry)}\n\n</details>"
    )


def _of_file(file: EnteredFile) -> str:
    if file.problem:
        return f"it cannot be taken: {prose(file.problem, 400)}"
    runs = file.runs
    figures = ", ".join(f"{run.bpb:.4f}" for run in runs[:5]) + (", …" if len(runs) > 5 else "")
    return f"{_count(len(runs), 'run')}, {figures} bits per byte, each its author's word"


def _row(file: EnteredFile, one: Found) -> str:
    odd = " (odd)" if one.kind == "odd" else ""
    words = prose(one.words, 300)
    field = speedrun_file.RULES[one.rule].field
    return f"| `{code(file.path, 80)}` | {one.run + 1} | `{field}` | {words}{odd} |"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
