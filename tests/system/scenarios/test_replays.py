"""A captured, signed body comes again: under another id, weeks later, from another way in."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.fake_github.world.webhooks import Delivery
from bot.inbox import deliveries, payloads
from bot.inbox.payloads import Heard
from tests.scenarios.lab import Lab, a_lab
from tests.scenarios.visible import visible
from tests.stub_trainer import StubRay

WEEKS = 21 * 24 * 3600


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab in which an experiment ran, a stranger was refused, and a run was cancelled."""
    with a_lab(tmp_path, StubRay(pace=48)) as lab:
        lab.preregister()
        lab.propose()
        lab.clock.advance(30)
        lab.say("sam", 2, "/run")
        lab.say("sam", 2, "/cancel")
        lab.say("sam", 2, "/help")
        lab.say("grace", 2, "/run")
        lab.say("grace", 2, "/cancel")
        lab.say("grace", 2, "/status")
        yield lab


def by_another_id(lab: Lab, delivery: Delivery) -> None:
    headers = dict(delivery.headers) | {"X-GitHub-Delivery": f"again-{delivery.id}"}
    lab.deliver(headers, delivery.body)


def by_the_same_id(lab: Lab, delivery: Delivery) -> None:
    lab.deliver(delivery.headers, delivery.body)


def _kept(lab: Lab, delivery: Delivery, how: Heard) -> None:
    said = payloads.read(delivery.event, json.loads(delivery.body), how)
    if said and said.thread and lab.bot:
        deliveries.keep(lab.store, said.thread, f"{how}-{delivery.id}", said)
        lab.bot.wake(said.thread)


def by_the_file_of_an_event(lab: Lab, delivery: Delivery) -> None:
    _kept(lab, delivery, "event-file")


def by_the_apps_list(lab: Lab, delivery: Delivery) -> None:
    _kept(lab, delivery, "app-list")


WAYS = [by_another_id, by_the_same_id, by_the_file_of_an_event, by_the_apps_list]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("later", [0, WEEKS])
def test_a_repeated_delivery_changes_nothing(
    lab: Lab, way: Callable[[Lab, Delivery], None], later: int
) -> None:
    before = visible(lab)
    lab.clock.advance(later)
    for delivery in list(lab.sandbox.webhooks.deliveries):
        way(lab, delivery)
        lab.settle()
    assert visible(lab) == before
    assert lab.records("inbox") == {}


def test_a_repeated_delivery_changes_nothing_after_a_promotion(lab: Lab) -> None:
    before = visible(lab)
    lab.sandbox.set_role("sam", "maintain")
    lab.clock.advance(WEEKS)
    for delivery in list(lab.sandbox.webhooks.deliveries):
        by_another_id(lab, delivery)
        lab.settle()
    assert visible(lab) == before


def test_a_repeated_delivery_changes_nothing_after_a_restart(lab: Lab) -> None:
    before: dict[str, Any] = visible(lab)
    lab.die()
    lab.start()
    for delivery in list(lab.sandbox.webhooks.deliveries):
        by_another_id(lab, delivery)
    lab.settle()
    assert visible(lab) == before
