"""The loss curves in a result's comment. Text never waits for pictures: if the picture cannot be
kept at once, the comment says that it follows, and one edit adds it. Pure."""

from collections.abc import Iterator

from bot.model.actions import Action, Picture, Say, Show
from bot.model.keys import Key
from bot.model.thread import Ran, Thread
from runner.publish import charts
from runner.schema.record import Run

FOLLOWS = "The loss curves follow."  # a line of its own, for which the edit looks


def key(ran: Ran) -> Key:
    """The key of an execution's picture."""
    return Key("picture", ran.execution.id)


def line(thread: Thread, ran: Ran) -> str | None:
    """What the result says of it now: shows it, says that it follows, or nothing (None)
    where there is none."""
    said = thread.said.get(key(ran))
    if said is None or not said.done:
        return FOLLOWS if _drawn(ran) else None
    if said.id is None:
        return None
    address = f"{thread.url}/raw/{said.note}/{ran.execution.id}.png"
    scored = any(run.validation for run in ran.runs)
    more = ", and bits per byte on the validation text" if scored else ""
    return f"![Training loss of every run over tokens{more}]({address})"


def rules(thread: Thread, ran: Ran, words: str | None) -> Iterator[Action]:
    """The picture, and the result with these `words`, if it has not been said; or its edit."""
    result, execution = Key("result", ran.execution.id), ran.execution
    drawn = _drawn(ran)
    if drawn and ran.result:
        yield Picture(
            key=key(ran),
            execution=execution.id,
            draw=lambda: charts.png(charts.loss_curves(execution.plan, drawn)),
            at=ran.result.at,
        )
    now = line(thread, ran)
    if words is not None:
        yield Say(result, words, lacks=key(ran) if now == FOLLOWS else None)
    elif (said := thread.said[result]).unfinished and now != FOLLOWS:
        yield Show(of=result, body=_with(said.unfinished, now), state=ran.life.state, final=True)


def _drawn(ran: Ran) -> list[Run]:
    return [run for run in ran.runs if len(run.curve) > 1]


def _with(body: str, now: str | None) -> str:
    """The words as they were said, with `now` in the place of the line that says what follows."""
    before, _, after = f"\n{body}".rpartition(f"\n{FOLLOWS}\n")
    return f"{before}\n{now}\n{after}".strip() if now else f"{before}{after}".strip()
