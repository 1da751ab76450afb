"""The feed and the badge: what is new, whichever way it went, also where titles are odd."""

import xml.etree.ElementTree as ET
from datetime import timedelta

import pytest

from bot.site.pages.build import build
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import EVIL

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def feed_of(store, site):
    build(store, site)
    feed = ET.parse(site / "feed.xml").getroot()
    return feed, feed.findall(f"{ATOM}entry")


def titles(entries):
    return [entry.findtext(f"{ATOM}title") for entry in entries]


def test_the_feed_of_a_new_lab_is_a_feed(store, tmp_path):
    feed, entries = feed_of(store, tmp_path / "site")
    assert entries == []
    assert feed.findtext(f"{ATOM}id").startswith("urn:uuid:")
    assert feed.findtext(f"{ATOM}updated") == "1970-01-01T00:00:00+00:00"


def test_the_feed_has_ended_executions_and_records_newest_first(store, tmp_path):
    first = synthetic.plan(predictions=[synthetic.prediction("> 0.05")])
    synthetic.finish(store, synthetic.execution(first, "1"), synthetic.PLAIN)
    later = synthetic.START + timedelta(hours=1)
    better = synthetic.figures([3.4, 3.5, 3.4], [2.0, 2.02, 2.01])
    second = synthetic.execution(synthetic.plan(title="Better"), "2", at=later)
    synthetic.finish(store, second, better)
    synthetic.begin(store, synthetic.execution(synthetic.plan(title="Runs"), "3"))
    _, entries = feed_of(store, tmp_path / "site")
    assert titles(entries) == [
        "New record: 2.010 ± 0.010 bits per byte on stdlib",
        "Better: done",
        f"{first.title}: refuted",
    ]
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(ids)) == len(ids)
    for entry in entries:
        assert (tmp_path / "site" / entry.find(f"{ATOM}link").get("href")).is_file()


def test_an_entry_keeps_its_id_when_others_come(store, tmp_path):
    synthetic.finish(store, synthetic.execution(synthetic.plan(), "1"), synthetic.PLAIN)
    _, before = feed_of(store, tmp_path / "site")
    synthetic.finish(store, synthetic.execution(synthetic.plan(), "2"), synthetic.PLAIN)
    _, after = feed_of(store, tmp_path / "site")
    ids = [{entry.findtext(f"{ATOM}id") for entry in entries} for entries in (before, after)]
    assert ids[0] < ids[1]


def test_odd_characters_of_a_title_leave_the_feed_and_the_badge_xml(store, tmp_path):
    title = EVIL + "\x00\x1b]]>"
    synthetic.finish(store, synthetic.execution(synthetic.plan(title=title)), synthetic.PLAIN)
    build(store, tmp_path / "site", lab=EVIL + "\x07")
    entries = ET.parse(tmp_path / "site" / "feed.xml").getroot().findall(f"{ATOM}entry")
    assert any(EVIL in title for title in titles(entries))
    ET.parse(tmp_path / "site" / "badge.svg")


def test_the_badge_counts_verdicts_that_count_and_names_the_best(store, tmp_path):
    plan = synthetic.plan(predictions=[synthetic.prediction(), synthetic.prediction("> 0.05")])
    synthetic.finish(store, synthetic.execution(plan), synthetic.PLAIN)
    build(store, tmp_path / "site")
    root = ET.parse(tmp_path / "site" / "badge.svg").getroot()
    assert root.get("aria-label") == "Regatta: 2 verdicts · best 2.620 bpb"
