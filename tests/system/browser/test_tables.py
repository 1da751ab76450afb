"""The tables of the speedrun and of entered results: sorted, filtered, and linked to."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Visit

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

BUDGET = "#small-budget-rows"


def column(page: Page, table: str, heading: str) -> list[str]:
    """The texts of a column of a table, as they are shown."""
    heads = [text.strip() for text in page.locator(f"{table} thead th").all_inner_texts()]
    index = next(i for i, text in enumerate(heads) if text.startswith(heading))
    return page.locator(f"{table} tbody tr > :nth-child({index + 1})").all_inner_texts()


def means(page: Page, table: str, heading: str) -> list[float]:
    return [float(text.split()[0]) for text in column(page, table, heading)]


def test_a_track_is_sorted_and_the_link_keeps_it(visit: Visit) -> None:
    page = visit.go("speedrun.html")
    heading = page.locator(f"{BUDGET} thead th", has_text="eval/bpb")
    heading.get_by_role("button").click()
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    found = means(page, BUDGET, "eval/bpb")
    assert found == sorted(found, reverse=True)
    assert found[0] > 2.58  # which does not stand on the page's first rows
    link = page.url
    assert "small-budget-rows.sort=mean" in urlsplit(link).fragment
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(f"{BUDGET} tbody tr").first).to_contain_text("try-59")
    # The other tracks stand as they were.
    expect(page.locator("#small-cost-rows thead th").first).to_have_attribute(
        "aria-sort", "ascending"
    )


def test_a_track_is_filtered_by_author_and_by_its_frontier(visit: Visit) -> None:
    page = visit.go("speedrun.html#small-budget-rows.author=Bo")
    expect(page.locator(f"{BUDGET} tbody tr")).to_have_count(20)
    status = page.locator("form[data-for=small-budget-rows] [role=status]")
    expect(status).to_have_text("20 of 60 rows")
    page.locator("#small-cost-rows-front").select_option("hardware_flops")
    expect(page.locator("#small-cost-rows tbody tr")).not_to_have_count(6)
    for text in page.locator("#small-cost-rows tbody tr").all_inner_texts():
        assert re.search("[◆◇]", text)
    page.locator("#small-cost-rows-front").select_option("")
    page.locator("#small-cost-rows-ranked").select_option("not ranked")
    expect(page.locator("#small-cost-rows tbody tr")).to_have_count(2)
    expect(page.locator("#small-cost-rows tbody")).to_contain_text("it looked ahead")


def test_a_track_is_paged_and_its_links_lead_to_executions(visit: Visit, site: Path) -> None:
    page = visit.go("speedrun.html#small-budget-rows.page=2")
    expect(page.locator(f"{BUDGET} tbody tr")).to_have_count(10)
    where = page.locator(f"{BUDGET} tbody a").last.evaluate("one => one.href")
    assert where.startswith(f"{visit.root}executions/")
    assert (site / where.removeprefix(visit.root)).is_file()


def test_the_frontier_of_a_track_follows_the_cost_that_is_chosen(visit: Visit) -> None:
    page = visit.go("speedrun.html#at=small-cost-cost&small-cost-cost.x=tokens")
    figure = page.locator("#small-cost-cost")
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".plot .marks")).to_be_visible()
    expect(figure.locator("[data-knob=x]")).to_have_value("tokens")
    figure.get_by_text("Data table").click()
    expect(figure.locator("tbody tr")).to_have_count(5)  # without the one that is void


def test_entries_are_sorted_and_filtered_and_linked_to(visit: Visit) -> None:
    page = visit.go("entries.html")
    rows = page.locator("#entries tbody tr")
    expect(rows.first).to_contain_text("experiments/e5/")  # the newest
    heading = page.locator("#entries thead th", has_text="bits per byte")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    found = means(page, "#entries", "bits per byte")
    assert found == sorted(found)
    page.locator("#filter-found").select_option("impossible")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Impossible: training_time is -1.0")
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_role("status")).to_have_text("1 of 6 rows")
    page.locator("#filter-found").select_option("")
    page.locator("#filter-text").fill("e3/speedrun bo")
    expect(rows).to_have_count(1)
