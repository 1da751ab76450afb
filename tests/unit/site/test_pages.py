"""The pages: they stand alone, show strangers' words as words, and replace the old ones whole."""

import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bot.site.facts.lab import read_lab
from bot.site.pages import build as pages_build
from bot.site.pages import executions, templating
from bot.site.pages.build import SiteError, build
from engine.config.schema import TrainConfig
from runner.store.store import Store
from tests import synthetic

HOST = "http://127.0.0.1:8000"
EVIL = "<script>alert(1)</script> & \"quotes\" '{{ 7 * 7 }}'"
VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(HTMLParser):
    """A page as its tags, its links and its text; tags must be closed in their order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.open, self.tags, self.links = path, [], [], []
        self.words, self.ids = [], []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def filled(store):
    """A finished execution with two predictions, one that runs, one sealed question."""
    predictions = [synthetic.prediction(), synthetic.prediction("2.0 ± 0.2", versus=None)]
    seal = synthetic.preregister(store, 1, edits=1, predictions=predictions)
    plan = synthetic.plan(preregistration=1, predictions=predictions)
    plan = plan.model_copy(update={"seal": seal.seal})
    refused = ["x.t1/out/eval.json: it lay there before the attempt began"]
    synthetic.finish(store, synthetic.execution(plan), synthetic.PLAIN, refused=refused)
    running = synthetic.execution(synthetic.plan(title="A longer run"), "2", pull=4)
    synthetic.begin(store, running, "t1.claimed", "t1.started")
    synthetic.preregister(store, 3, title="Does weight decay matter?")
    return store


def page_of(site, name="1"):
    return Page(site / "executions" / synthetic.record.execution_id(name) / "index.html")


def every_page(site):
    return [Page(path) for path in sorted(site.rglob("*.html"))]


def test_an_empty_store_says_how_to_take_part(store, tmp_path):
    build(store, tmp_path / "site")
    page = Page(tmp_path / "site" / "index.html")
    assert "No results yet" in page.text
    assert "Preregister. Open an issue" in page.text
    assert "table" not in page.tags


def test_the_front_page_shows_what_runs_was_judged_and_is_wished_for(filled, tmp_path):
    build(filled, tmp_path / "site", repository_url=HOST)
    page = Page(tmp_path / "site" / "index.html")
    assert "A longer run running since" in page.text
    assert "Does weight decay matter? #3 , asked by ada" in page.text
    assert "✓ confirmed fast beats slow by 0.800 bits per byte (95 % CI" in page.text
    assert "ada predicted: by more than 0.05, 80 % sure" in page.text
    assert "fast minus slow: −0.800" in page.text
    assert "Best so far 2026-03-01 2.620 bits per byte on stdlib lower is better" in page.text
    assert page.text.index("2.620 ± 0.040") < page.text.index("3.420")
    assert f"{HOST}/regatta/lab/issues/3" in page.links


def test_the_board_shows_figures_verdicts_tiers_and_the_frontier(filled, tmp_path):
    synthetic.finish(filled, synthetic.execution(synthetic.plan(), "8", pull=None), synthetic.PLAIN)
    build(filled, tmp_path / "site", repository_url=HOST)
    page = Page(tmp_path / "site" / "leaderboards.html")
    assert "2.620 ± 0.040 ◆ on the frontier" in page.text
    assert "run by the lab" in page.text
    assert "self-reported" in page.text
    assert page.text.index("2.620 ± 0.040 ◆") < page.text.index("3.420")
    assert f"{HOST}/regatta/lab/pull/2" in page.links


def test_an_executions_page_begins_with_its_verdicts(filled, tmp_path):
    build(filled, tmp_path / "site", repository_url=HOST)
    text = page_of(tmp_path / "site").text
    order = ["Verdicts", "Arms", "Training curves", "Hypothesis and design", "Receipt"]
    positions = [text.index(heading) for heading in order]
    assert positions == sorted(positions)
    assert "Predicted: by more than 0.05, 80 % sure" in text
    assert "fast beats slow by 0.800 bits per byte (95 % CI 0.710 to 0.890, 3 seeds)" in text


def test_an_executions_page_holds_the_whole_receipt(filled, tmp_path):
    build(filled, tmp_path / "site", repository_url=HOST)
    page = page_of(tmp_path / "site")
    execution = synthetic.execution(synthetic.plan())
    assert execution.origin.commit in page.text
    assert execution.plan.fingerprint in page.text
    assert "grace, plan 1 of pull request #2" in page.text
    assert "The issue was edited once after it was sealed. The sealed text counts." in page.text
    assert "Ten times the rate learns more" in page.text
    assert "it lay there before the attempt began" in page.text
    for arm, seed in execution.plan.runs():
        assert synthetic.sha(f"{execution.id} {arm} {seed}") in page.text
    assert f"{HOST}/regatta/lab/issues/1" in page.links


def test_the_role_of_who_approved_is_told_where_the_approval_is_recorded(store, tmp_path):
    execution = synthetic.execution(synthetic.plan())
    approval = synthetic.record.Approval(
        repository=7,
        pull=2,
        command="9002-0",
        by=synthetic.GRACE,
        role="maintain",
        at=synthetic.START,
        approved=True,
    )
    synthetic.record.write(store, "approvals/7/2/9002-0", approval)
    synthetic.finish(store, execution, synthetic.PLAIN)
    build(store, tmp_path / "site")
    assert "grace (maintain), 2026-03-01 12:00 UTC" in page_of(tmp_path / "site").text


def test_a_local_run_says_that_nobody_approved_it(store, tmp_path):
    synthetic.finish(store, synthetic.execution(synthetic.plan(), pull=None), synthetic.PLAIN)
    build(store, tmp_path / "site", repository_url=HOST)
    assert "nobody (local run, unsigned)" in page_of(tmp_path / "site").text
    assert "self-reported" in Page(tmp_path / "site" / "leaderboards.html").text


def test_a_failed_run_is_named_with_its_reason(store, tmp_path):
    plan, why = synthetic.plan(predictions=[synthetic.prediction()]), "loss not finite at step 9"
    execution = synthetic.execution(plan)
    figures = synthetic.PLAIN | {("fast", 1): None}
    runs = [
        synthetic.run(plan, arm, seed, bpb, execution=execution.id)
        if bpb
        else synthetic.run(plan, arm, seed, None, state="failed", why=why, execution=execution.id)
        for (arm, seed), bpb in figures.items()
    ]
    synthetic.finish(store, execution, figures, runs=runs)
    build(store, tmp_path / "site")
    text = page_of(tmp_path / "site").text
    assert "fast.s1 failed: loss not finite at step 9" in text
    assert "inconclusive: incomplete, 2 of 3 seeds; no figure for fast.s1" in text
    assert "2 of 3" in Page(tmp_path / "site" / "leaderboards.html").text


def test_every_link_within_the_site_leads_somewhere_also_from_a_file(filled, tmp_path):
    build(filled, tmp_path / "site", repository_url=HOST)
    for page in every_page(tmp_path / "site"):
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "data"):
                continue
            assert not link.startswith("/")
            target = page.path.parent / parts.path if parts.path else page.path
            assert target.is_file(), link
            if parts.fragment.startswith("runs="):
                for name in unquote(parts.fragment.removeprefix("runs=")).split(","):
                    assert (tmp_path / "site" / "runs" / f"{name}.js").is_file()
            elif "=" in parts.fragment:  # the state of a table
                table, _, key = parts.fragment.partition("=")[0].partition(".")
                there = Page(target.resolve())
                assert table in there.ids
                assert f"filter-{key}" in there.ids
            elif parts.fragment:
                assert parts.fragment in Page(target.resolve()).ids


def test_no_page_asks_another_host_for_anything(filled, tmp_path):
    build(filled, tmp_path / "site", repository_url=HOST)
    for page in every_page(tmp_path / "site"):
        source = page.path.read_text()
        loaded = [part.split('"')[0] for part in source.split('src="')[1:]]
        assert all(not urlsplit(address).scheme for address in loaded)
    style = (tmp_path / "site" / "style.css").read_text()
    assert "url(" not in style
    assert "@import" not in style


def test_strangers_words_are_shown_as_words(store, tmp_path):
    synthetic.preregister(store, 1, title=EVIL, hypothesis=EVIL)
    synthetic.preregister(store, 2, title=EVIL)
    synthetic.finish(
        store,
        synthetic.execution(synthetic.plan(title=EVIL, preregistration=1, text=EVIL)),
        synthetic.PLAIN,
        why=EVIL,
        state="failed",
        refused=[EVIL],
    )
    synthetic.begin(store, synthetic.execution(synthetic.plan(title=EVIL), "2"))
    build(store, tmp_path / "site", lab=EVIL, repository_url=HOST)
    front = Page(tmp_path / "site" / "index.html")
    own = page_of(tmp_path / "site", "2").tags.count("script")  # the same on each page
    assert front.tags.count("script") == own
    assert front.text.count(EVIL) >= 6
    for name, least in (("1", 8), ("2", 3)):
        page = page_of(tmp_path / "site", name)
        assert page.tags.count("script") == own
        assert page.text.count(EVIL) >= least


def test_a_repositorys_name_cannot_leave_its_place_in_a_link(store, tmp_path):
    plain = synthetic.execution(synthetic.plan())
    origin = plain.origin.model_copy(update={"repository_name": 'a/b" onclick="x?y#z'})
    synthetic.finish(store, plain.model_copy(update={"origin": origin}), synthetic.PLAIN)
    build(store, tmp_path / "site", repository_url=HOST + "/")
    assert f"{HOST}/a/b%22%20onclick%3D%22x%3Fy%23z/pull/2" in page_of(tmp_path / "site").links


def test_without_a_host_threads_are_named_and_not_linked(filled, tmp_path):
    build(filled, tmp_path / "site")
    for page in every_page(tmp_path / "site"):
        assert not [link for link in page.links if urlsplit(link).scheme not in ("", "data")]
    assert "pull request #2" in page_of(tmp_path / "site").text


def test_the_json_says_what_the_page_says(filled, tmp_path):
    build(filled, tmp_path / "site")
    board = json.loads((tmp_path / "site" / "api" / "leaderboard.json").read_text())
    (group,) = board["groups"]
    best = group["rows"][0]
    assert [row["arm"] for row in group["rows"]] == ["fast", "slow"]
    assert best["eval/bpb"] == pytest.approx(2.62)
    assert best["figures"] == {"0": 2.58, "1": 2.66, "2": 2.62}
    assert (best["rank"], best["seeds"], best["pull"]) == (1, 3, 2)
    assert [verdict["outcome"] for verdict in best["verdicts"]] == ["confirmed", "refuted"]
    assert (tmp_path / "site" / best["page"]).is_file()
    assert [entry["title"] for entry in board["running"]] == ["A longer run"]
    assert [seal["issue"] for seal in board["wishlist"]] == [3]


def contents(site):
    return {path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def test_equal_records_give_equal_bytes(filled, tmp_path):
    build(filled, tmp_path / "one", repository_url=HOST)
    build(filled, tmp_path / "two", repository_url=HOST)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_only_what_has_changed_is_drawn_again(filled, tmp_path):
    first = build(filled, tmp_path / "site")
    again = build(filled, tmp_path / "site")
    assert any(path.endswith("loss.js") for path in first.drawn)
    assert not any(path.startswith("executions/") for path in again.drawn)
    synthetic.finish(filled, synthetic.execution(synthetic.plan(), "3"), synthetic.PLAIN)
    third = build(filled, tmp_path / "site")
    new = synthetic.record.execution_id("3")
    pages_drawn = [path for path in third.drawn if path.startswith("executions/")]
    assert pages_drawn == [f"executions/{new}/loss.js", f"executions/{new}/index.html"]
    build(filled, tmp_path / "fresh")
    assert contents(tmp_path / "site") == contents(tmp_path / "fresh")


def test_a_build_that_dies_is_finished_by_the_next_one(filled, tmp_path, monkeypatch):
    site = tmp_path / "site"
    build(filled, site)
    front = (site / "index.html").read_bytes()
    # The same execution goes on: its page is written, and the build dies before the front page.
    synthetic.finish(filled, synthetic.execution(synthetic.plan(), "2", pull=4), synthetic.PLAIN)

    def dies(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pages_build, "leaderboard", dies)
        with pytest.raises(KeyboardInterrupt):
            build(filled, site)
    assert (site / "index.html").read_bytes() == front
    build(filled, site)
    build(filled, tmp_path / "fresh")
    assert contents(site) == contents(tmp_path / "fresh")


def test_a_page_whose_record_is_gone_is_gone_after_the_next_build(filled, tmp_path):
    build(filled, tmp_path / "site")
    build(Store(tmp_path / "another"), tmp_path / "site")
    assert not (tmp_path / "site" / "executions").exists()


def test_a_build_succeeds_after_somebody_removed_a_folder_of_the_site(filled, tmp_path):
    build(filled, tmp_path / "site")
    shutil.rmtree(tmp_path / "site" / "executions")
    build(Store(tmp_path / "another"), tmp_path / "site")
    assert not (tmp_path / "site" / "runs").exists()


def test_the_digest_of_a_lab_depends_on_the_names_of_its_repositories(store):
    lab = read_lab(store)
    assert replace(lab, repositories={700001: "ada/lab"}).told != lab.told


def test_a_folder_that_is_no_site_is_never_replaced(store, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(SiteError, match="has something that is not a site"):
        build(store, tmp_path / "home")
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


def test_a_file_in_the_sites_place_is_refused(store, tmp_path):
    (tmp_path / "site").write_text("x")
    with pytest.raises(SiteError, match="is a file"):
        build(store, tmp_path / "site")


@pytest.mark.parametrize("address", ["javascript:alert(1)", "github.com", ""])
def test_a_host_that_is_no_web_address_is_refused(store, tmp_path, address):
    with pytest.raises(SiteError, match="not a web address"):
        build(store, tmp_path / "site", repository_url=address)


def test_an_interval_far_from_its_set_is_drawn_within_the_strip(store):
    plan = synthetic.plan(predictions=[synthetic.prediction("1e6 ± 1")])
    synthetic.finish(store, synthetic.execution(plan), synthetic.PLAIN)
    (verdict,) = pages_build.read_lab(store).entries[0].result.verdicts
    drawn = executions.strip(verdict)
    assert 0 <= drawn["from"] <= drawn["at"] <= drawn["to"] < drawn["set_from"]
    assert drawn["set_from"] <= drawn["set_to"] <= 100


def test_arms_with_and_without_phases_are_told_apart():
    one = synthetic.planned_arm()
    phases = {"phases": [{"at": 8, "lr_schedule": "cosine"}]}
    late = one.model_copy(
        update={"train": TrainConfig.model_validate(one.train.model_dump() | phases)}
    )
    for arms in ({"flat": one, "late": late}, {"late": late, "flat": one}):
        shared, differing = executions.knobs(synthetic.plan(arms=arms))
        assert shared["lr_schedule"] == "linear"
        assert differing["flat"] == {"phases": None}
        [phase] = differing["late"]["phases"]
        assert (phase["at"], phase["lr_schedule"]) == (8, "cosine")


def test_a_relative_error_has_a_sign_and_zero_has_none() -> None:
    assert [templating.signed(x) for x in (0.0123, -0.0123, -0.00001)] == [
        "+1.23 %",
        "−1.23 %",
        "0.00 %",
    ]
