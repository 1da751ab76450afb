"""What a visitor does with the site: sort, filter, compare, follow a link, change the theme, read
the table behind a chart; and that it can be used by everybody."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.system.browser.conftest import DESKTOP, PHONE, Visit, visiting

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def boards(visit: Visit) -> Page:
    return visit.go("leaderboards.html")


def column(page: Page, heading: str) -> list[str]:
    """The texts of a column of the board, as they are shown."""
    heads = page.locator("#board thead th").all_inner_texts()
    index = next(i for i, text in enumerate(heads) if text.strip().startswith(heading))
    return page.locator(f"#board tbody tr > :nth-child({index + 1})").all_inner_texts()


def means(page: Page) -> list[float]:
    return [float(text.split()[0]) for text in column(page, "eval/bpb")]


def test_a_board_is_sorted_by_its_headings_and_the_link_keeps_it(visit: Visit) -> None:
    page = boards(visit)
    assert means(page) == sorted(means(page))
    heading = page.locator("#board thead th", has_text="eval/bpb")
    heading.get_by_role("button").click()
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    worst = means(page)
    assert worst == sorted(worst, reverse=True)
    assert worst[0] > 3.5
    page.reload()
    expect(page.locator("#board thead th", has_text="eval/bpb")).to_have_attribute(
        "aria-sort", "descending"
    )
    expect(page.locator("#board tbody tr").first).to_contain_text(f"{worst[0]:.3f}")


def test_a_board_is_sorted_with_the_keyboard_alone(visit: Visit) -> None:
    page = boards(visit)
    page.locator("#board thead th", has_text="Model FLOPs").get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#board thead th", has_text="Model FLOPs")).to_have_attribute(
        "aria-sort", "ascending"
    )


def test_rows_are_filtered_by_words_and_the_number_of_rows_is_said(visit: Visit) -> None:
    page = boards(visit)
    page.locator("#filter-text").fill("17: long fast")
    expect(page.locator("#board tbody tr")).to_have_count(1)
    expect(page.get_by_role("status").first).to_contain_text("1 of")
    page.locator("#filter-text").fill("no such words anywhere")
    expect(page.locator("#board tbody tr")).to_have_count(0)


def test_a_filtered_board_can_be_linked_to(visit: Visit) -> None:
    page = visit.go("leaderboards.html#board.text=17:%20long")
    expect(page.locator("#board tbody tr")).to_have_count(2)


def test_rows_are_picked_and_their_runs_compared(visit: Visit) -> None:
    page = boards(visit)
    picks = page.locator("#board input.pick")
    picks.nth(0).check()
    picks.nth(1).check()
    page.locator("#picked a").click()
    expect(page).to_have_url(re.compile(r"compare\.html#runs="))
    expect(page.locator("#chosen li")).to_have_count(6)
    expect(page.locator("#differences tbody tr")).not_to_have_count(0)
    page.locator("#chosen button").first.click()
    expect(page.locator("#chosen li")).to_have_count(5)
    expect(page.locator("figure .plot svg, figure .plot canvas").first).to_be_visible()


def test_runs_that_are_not_there_are_named(visit: Visit) -> None:
    page = visit.go("compare.html#runs=x0000000000000000.fast.s0")
    expect(page.locator("#chosen li")).to_contain_text("not found")
    visit.wrong.clear()  # a browser says itself that a file was not found


def test_the_theme_is_switched_and_remembered(visit: Visit) -> None:
    page = visit.go("index.html")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_label("Theme").select_option("dark")
    dark = page.evaluate(paper)
    assert dark != light
    page.goto(f"{visit.root}leaderboards.html")
    assert page.evaluate(paper) == dark
    page.get_by_label("Theme").select_option("light")
    assert page.evaluate(paper) == light


def test_the_table_behind_a_chart_is_read_without_drawing_it(visit: Visit) -> None:
    page = boards(visit)
    figure = page.locator("figure[data-chart]").first
    figure.get_by_text("Data table").click()
    expect(figure.locator("table tbody tr").first).to_be_visible()
    assert figure.locator("table tbody tr").count() > 1


def test_vega_is_loaded_when_a_chart_comes_into_view_and_not_before(
    visit: Visit, site: Path
) -> None:
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page = visit.page
    page.set_viewport_size({"width": 1280, "height": 300})
    chart = next(path for path in (site / "executions").glob("*/loss.js"))
    visit.go(f"executions/{chart.parent.name}/index.html")
    page.wait_for_load_state("networkidle")
    assert not any(path.endswith("vega.js") for path in asked)
    page.locator("figure[data-chart]").first.scroll_into_view_if_needed()
    expect(page.locator("figure[data-chart] .plot .marks").first).to_be_visible()
    assert sum(path.endswith("vega.js") for path in asked) == 1


def test_a_charts_state_is_in_its_link(visit: Visit) -> None:
    page = visit.go("leaderboards.html")
    figure = page.locator("#frontier")
    figure.scroll_into_view_if_needed()
    knob = figure.locator("select[data-knob], input[type=checkbox][data-knob]").first
    expect(knob).to_be_visible()
    if knob.evaluate("one => one.tagName") == "SELECT":
        knob.select_option(index=1)
    else:
        knob.click()
    assert "." in urlsplit(page.url).fragment
    of = "one => one.type === 'checkbox' ? one.checked : one.value"
    shown, link = knob.evaluate(of), page.url
    page.goto("about:blank")
    page.goto(link)
    figure.scroll_into_view_if_needed()
    expect(knob).to_be_visible()
    assert knob.evaluate(of) == shown


def test_a_page_says_where_one_is_and_every_link_leads_somewhere(visit: Visit, site: Path) -> None:
    page = visit.go("index.html")
    for name in page.locator("header nav a").evaluate_all("all => all.map(one => one.href)"):
        page.goto(name)
        expect(page.locator("h1")).to_have_count(1)
    assert (site / "api" / "leaderboard.json").is_file()
    assert json.loads((site / "api" / "leaderboard.json").read_bytes())["groups"]


def every_kind(site: Path) -> list[str]:
    """One page of each kind, and those that stand at the top."""
    found = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    kinds: dict[str, str] = {}
    for path in found:
        parts = path.split("/")
        kinds.setdefault(f"{len(parts)} {parts[0]}", path)
    return sorted(kinds.values())


# ── The list of experiments ──────────────────────────────────────────────────────────────────


def test_experiments_are_searched_from_any_page_and_the_link_keeps_it(visit: Visit) -> None:
    page = visit.go("people.html")
    page.get_by_label("Search the experiments").fill("question 17")
    page.keyboard.press("Enter")
    rows = page.locator("#experiments tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Question 17")
    page.reload()
    expect(rows).to_have_count(1)
    page.locator("#filter-text").fill("")
    expect(rows).to_have_count(50)


def test_a_tag_lists_the_experiments_that_have_it(visit: Visit) -> None:
    page = visit.go("experiments.html")
    page.locator("#experiments .tag", has_text="wiki").first.click()
    expect(page.get_by_role("status")).to_contain_text("12 of")
    expect(page.locator("#filter-tag")).to_have_value("wiki")


def test_a_citation_is_copied(chromium: Browser, site: Path, served: str) -> None:
    for visit in visiting(chromium, served, permissions=["clipboard-read", "clipboard-write"]):
        run = next((site / "runs").glob("*.html")).name
        page = visit.go(f"runs/{run}")
        page.get_by_role("button", name="Copy: BibTeX").click()
        expect(page.get_by_role("button", name="Copy: BibTeX")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()").startswith("@misc{regatta-x")


def test_without_a_script_the_site_is_read_and_every_experiment_is_found(
    chromium: Browser, site: Path
) -> None:
    root = f"{site.as_uri()}/"
    for visit in visiting(chromium, root, viewport=DESKTOP, java_script_enabled=False):
        page = visit.go("index.html")
        expect(page.get_by_role("heading", name="Found last")).to_be_visible()
        expect(page.locator(".spark svg .line").first).to_be_visible()
        page.get_by_role("link", name="All experiments").click()
        expect(page.locator("#experiments tbody tr")).to_have_count(50)
        page.get_by_role("link", name="the list in pages").click()
        expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
        assert page.locator("tbody tr").count() > 0


# ── For everybody ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("size", "theme"),
    [  # each size and each theme by day, the other two pairs by night
        pytest.param(DESKTOP, "light", id="desktop-light"),
        pytest.param(PHONE, "dark", id="phone-dark"),
        pytest.param(DESKTOP, "dark", id="desktop-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_an_accessibility_audit_finds_nothing(
    chromium: Browser, site: Path, served: str, size: dict[str, int], theme: str
) -> None:
    for visit in visiting(chromium, served, viewport=size, color_scheme=theme):
        for path in every_kind(site):
            page = visit.go(path)
            page.wait_for_load_state("networkidle")
            found = Axe().run(page).response["violations"]
            told = [
                f"{path}: {one['id']} ({one['impact']}) {one['nodes'][0]['html'][:200]}"
                for one in found
            ]
            assert told == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_is_wider_than_a_phone(
    chromium: Browser, site: Path, served: str, theme: str
) -> None:
    for visit in visiting(chromium, served, viewport=PHONE, color_scheme=theme):
        for path in every_kind(site):
            page = visit.go(path)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], f"{path} is {wide} pixels wide"
