"""A pull request with a `speedrun_results.json` gets a check of it, and a comment. Pure.

Each head has a check of its own: a record of its files' content, and the audit's findings with run,
field and figures. If a later head has no such files, one neutral check says so. When the pull
request is merged, its rows become self-reported rows of the leaderboard.
"""

from collections.abc import Iterator

from bot.messages import entry_comment
from bot.model.actions import Action, Check, Say, Show, Write
from bot.model.keys import Key
from bot.model.thread import Thread
from runner.history.results_entries import EntryRecord, Merged

CHECK_NAME = "regatta / entry"


def rules(thread: Thread) -> Iterator[Action]:
    """What should exist on a pull request that enters results."""
    if thread.news:
        yield from _entry(thread)
        yield from _merged(thread)
    for entry in thread.entries:
        key = Key("entry", str(entry.n))
        if key not in thread.said:
            yield Say(key, entry_comment.body(entry))
        if entry is not thread.entries[-1] and key._replace(final=True) not in thread.said:
            yield Show(
                key, entry_comment.folded(entry, thread.entries[-1]), state="folded", final=True
            )
        if (check := key._replace(check=True)) not in thread.said:
            yield Check(
                key=check,
                name=CHECK_NAME,
                commit=entry.commit,
                conclusion=_conclusion(entry),
                title=entry_comment.title(entry),
                summary=entry_comment.body(entry),
            )


def _entry(thread: Thread) -> Iterator[Action]:
    # A plan of this head comes from the same finding, after its entry was recorded.
    looked = [*(entry.commit for entry in thread.entries[-1:])]
    looked += [plan.commit for plan in thread.plans[-1:]]
    pull = thread.pull()
    if pull is None or not (pull.open or pull.merged) or pull.head in looked:
        return
    found = thread.finding(pull.base, pull.head)
    # Files that GitHub would not show are not gone.
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
    if not thread.entries:
        return
    newest, pull = thread.entries[-1], thread.pull()
    if pull and pull.merged and pull.to_default and pull.head == newest.commit:
        path = f"entries/{thread.id}/merged"
        yield Write(path, Merged(at=thread.now, n=newest.n))


def _conclusion(entry: EntryRecord) -> str:
    if not entry.files:
        return "neutral"
    return "success" if entry.stands else "failure"
