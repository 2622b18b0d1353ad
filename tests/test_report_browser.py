"""The page in a real browser: nothing fails or is asked for, all can be used; on phones, and in the dark."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import streaming_jsmf as sj
from streaming_jsmf.display import percent
from streaming_jsmf.reporting.contents import Contents
from streaming_jsmf.reporting.layout import conditional
from streaming_jsmf.reporting.page import render
from streaming_jsmf.reporting.report import ShownReport
from streaming_jsmf.topics.edits import shown_topics
from tests.processes import PATIENCE
from tests.report_pages import UNDATED, YEARS, edited_model, full_contents
from tests.test_report_page import HOSTILE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

#: No sandbox within a container, and no requests of the browser's own.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

VIEWS = ("overview", "map", "together", "words", "documents", "groups", "levels", "trust")


@dataclass
class Shown:
    """A page in the browser, and what it did that no report may do."""

    page: Any
    faults: list[str] = field(default_factory=list)

    def view(self, name: str) -> Any:
        """Go to a part of the page by its link."""
        self.page.locator(f'nav.parts a[href="#{name}"]').click()
        section = self.page.locator(f"section#{name}")
        assert section.is_visible()
        return section

    def rows(self) -> list[int]:
        """Topics of the table as they stand, without the hidden ones."""
        script = "rows => rows.filter(row => !row.hidden).map(row => Number(row.dataset.topic))"
        return [int(topic) for topic in self.page.locator("table.topics tbody tr").evaluate_all(script)]

    def require_no_wider(self) -> None:
        """Nothing runs out of the page to the right."""
        root = "document.documentElement"
        assert self.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")


#: What a page may ask for.
OWN = ("file:", "http://notebook.test/")

Open = Callable[..., Shown]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), timeout=1000 * PATIENCE)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def open_report(browser: Any, pages: Path) -> Iterator[Open]:
    """A function that opens a report in a window of its own: one of so many topics, or of ``contents``."""
    opened: list[Shown] = []

    def open_report(
        name: int | str, size: dict[str, int] = DESKTOP, contents: Contents | None = None, **options: Any
    ) -> Shown:
        path = pages / f"{name}.html"
        if not path.exists():
            path.write_text(render(contents or full_contents(int(name))), encoding="utf-8")
        shown = Shown(browser.new_context(viewport=size, **options).new_page())
        opened.append(shown)
        shown.page.set_default_timeout(1000 * PATIENCE)
        shown.page.on("console", lambda message: shown.faults.append(message.text))
        shown.page.on("pageerror", lambda error: shown.faults.append(str(error)))
        shown.page.on("dialog", lambda dialog: shown.faults.append(dialog.message))
        shown.page.on(
            "request",
            lambda request: None if request.url.startswith(OWN) else shown.faults.append(request.url),
        )
        shown.page.goto(path.as_uri())
        return shown

    yield open_report
    for shown in opened:
        shown.page.context.close()
    assert [shown.faults for shown in opened] == [[]] * len(opened)


@pytest.mark.parametrize(
    "n_topics", [1, 20, pytest.param(100, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.slow)]
)
def test_every_part_is_drawn_without_a_fault(open_report: Open, n_topics: int) -> None:
    shown = open_report(n_topics)
    topics = full_contents(n_topics).topics
    assert shown.rows() == sorted(range(n_topics), key=lambda number: -topics[number].share)
    drawn = {
        "map": "svg.map circle",
        "together": "canvas",
        "words": ".answer li",
        "documents": "svg.map circle",
        "groups": ".line",
        "levels": ".nodes rect",
    }
    for name in VIEWS:
        section = shown.view(name)
        assert section.locator(drawn.get(name, "table")).count() >= 1
        assert sum(shown.page.locator(f"section#{other}").is_visible() for other in VIEWS) == 1
        shown.require_no_wider()
    assert shown.page.locator("#map svg circle").count() == n_topics


@pytest.mark.slow
def test_phones_and_the_dark(open_report: Open) -> None:
    shown = open_report(20, PHONE, color_scheme="dark")
    paper = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(21, 24, 28)"
    for name in VIEWS:
        shown.view(name)
        shown.require_no_wider()
    shown.view("overview")
    shown.page.locator("#topic-3 th a").click()
    panel = shown.page.locator("#topic").bounding_box()
    assert panel["x"] >= 0
    assert panel["x"] + panel["width"] <= PHONE["width"]
    assert panel["y"] + panel["height"] <= PHONE["height"]
    words = shown.page.locator("#topic-5 td.words").bounding_box()
    assert words["x"] + words["width"] <= PHONE["width"]


def test_topics_are_found_and_sorted(open_report: Open) -> None:
    shown, n_topics = open_report(20), 20
    topics = full_contents(n_topics).topics
    shown.page.locator("#search").fill(topics[17].words[4].text.upper())
    found = shown.rows()
    sought = topics[17].words[4].text
    expected = [topic.number for topic in topics if any(sought in word.text for word in topic.words)]
    assert sorted(found) == expected
    assert f"{len(expected)} of {n_topics}" in shown.page.locator("#controls > output").inner_text()
    assert shown.page.locator("#topic-17 .hit").count() >= 1
    shown.page.locator("#search").fill("no such word")
    assert shown.rows() == []
    shown.page.locator("#search").fill("")
    shown.page.locator('th[data-column="share"] button').click()
    assert shown.rows() == sorted(range(n_topics), key=lambda number: topics[number].share)
    shown.page.locator('th[data-column="share"] button').click()
    assert shown.rows() == sorted(range(n_topics), key=lambda number: -topics[number].share)
    shown.page.locator("#sort").select_option(label="NPMI")
    assert shown.rows() == sorted(range(n_topics), key=lambda number: -(topics[number].npmi or 0))
    headings = shown.page.locator("table.topics thead th")
    for column in range(headings.count()):
        headings.nth(column).locator("button").click()
        assert sorted(shown.rows()) == list(range(n_topics))
        assert headings.nth(column).get_attribute("aria-sort")


@pytest.mark.slow
def test_tables_and_figures_are_saved(open_report: Open, tmp_path: Path) -> None:
    shown = open_report(20, accept_downloads=True)

    def saved(name: str, text: str) -> str:
        with shown.page.expect_download() as download:
            shown.view(name).get_by_role("button", name=text).click()
        download.value.save_as(tmp_path / download.value.suggested_filename)
        return (tmp_path / download.value.suggested_filename).read_text(encoding="utf-8")

    topics = full_contents(20).topics
    head, *rows = csv.reader(io.StringIO(saved("overview", "Save as CSV")))
    assert [int(row[0]) for row in rows] == sorted(range(20), key=lambda number: -topics[number].share)
    for row in rows:
        told, topic = dict(zip(head, row, strict=True)), topics[int(row[0])]
        assert float(told["Share"]) == pytest.approx(topic.share, rel=1e-5)
        assert told["Prominent words"] == ", ".join(word.text for word in topic.words)
    drawn = {"map": ("circle", 20), "together": ("image", 1), "groups": ("path", 1)}
    for name, (kind, least) in drawn.items():
        figure = ElementTree.fromstring(saved(name, "Save as SVG"))
        assert len(figure.findall(f".//{{http://www.w3.org/2000/svg}}{kind}")) >= least


def test_a_selected_topic_shows_its_words_by_relevance(open_report: Open) -> None:
    shown = open_report(20)
    contents = full_contents(20)
    shown.page.locator("#topic-4 th a").click()
    words = shown.page.locator("#topic .bars .word")
    assert words.all_inner_texts()[:10] == [word.text for word in contents.topics[4].words]
    assert words.count() == 30
    shown.page.get_by_role("button", name="Show 1,000 words").click()
    assert words.count() == 1000
    shown.page.locator("#lambda").fill("0")
    lists = contents.lists
    lift = lists.probabilities[4] / lists.probability[lists.ids[4]]
    best = {lists.vocabulary[lists.ids[4][place]] for place in (-lift).argsort()[:5]}
    # Ratios that are nearly equal may change places where they are rounded.
    assert len(best & set(words.all_inner_texts()[:6])) >= 4
    assert shown.page.locator("#topic .documents > li").count() == 10
    shown.page.keyboard.press("Escape")
    assert not shown.page.locator("#topic").is_visible()


def test_a_topic_is_selected_on_the_map_and_in_the_square_and_known_everywhere(open_report: Open) -> None:
    shown = open_report(20)
    section = shown.view("map")
    circle = section.get_by_role("button", name="Topic 7 ").first
    circle.hover()
    assert "word" in shown.page.locator(".tooltip").inner_text()
    circle.click()
    assert shown.page.locator("#topic h2").inner_text().startswith("Topic 7:")
    assert "selected" in (shown.page.locator("#topic-7").get_attribute("class") or "")
    before = float(circle.get_attribute("r"))
    section.get_by_role("button", name="Zoom in").click()
    shown.page.wait_for_function(
        "r => document.querySelector('.map circle.selected').r.baseVal.value > r", arg=1.3 * before
    )
    section.get_by_role("button", name="Whole map").click()
    section = shown.view("together")
    section.locator("canvas").click(position={"x": 3, "y": 3})
    order = shown.page.evaluate("JSON.parse(document.getElementById('data').textContent).tree.order")
    assert shown.page.locator("#topic h2").inner_text().startswith(f"Topic {order[0]}:")
    for name in ("similarity of words", "co-occurrence in documents"):
        shown.page.locator("#cell-kind").select_option(label=name)
    shown.page.locator("#merge-level").fill("3")
    members = [item.locator("button").count() for item in section.locator("ol.groups > li").all()]
    assert len(members) == 3
    assert sum(members) == 20
    shown.view("groups")
    assert shown.page.locator("#group-topic").input_value() == str(order[0])


def test_the_map_and_the_square_are_walked_by_keys(open_report: Open) -> None:
    shown = open_report(20)
    shown.view("map")
    shown.page.locator('.map circle[tabindex="0"]').focus()
    seen = set()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp") * 3:
        shown.page.keyboard.press(key)
        seen.add(shown.page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert len(seen) >= 3
    shown.page.keyboard.press("Enter")
    label = shown.page.evaluate("document.activeElement.getAttribute('aria-label')")
    number = label.removeprefix("Topic ").split()[0]
    assert shown.page.locator("#topic h2").inner_text().startswith(f"Topic {number}:")
    shown.view("together")
    shown.page.locator("canvas").focus()
    for _ in range(3):
        shown.page.keyboard.press("ArrowRight")
    assert "times as often as by chance" in shown.page.locator("#together-status").inner_text()


def test_documents_are_colored_selected_and_walked_by_keys(open_report: Open) -> None:
    shown, scatter = open_report(20), full_contents(20).scatter
    assert scatter is not None
    section = shown.view("documents")
    circles = section.locator("circle")
    assert circles.count() == len(scatter.points)
    circles.nth(5).hover()
    lines = shown.page.locator(".tooltip").inner_text()
    assert all(text in lines for text in ("d5", f"Topic {scatter.topic[5]} ", "word5 word1999", "year: 1905"))
    colors = "circles => circles.map(circle => circle.style.getPropertyValue('--group'))"
    found = {"word0": scatter.table.column("word0").to_pylist(), "": scatter.topic.tolist()}
    for column, values in found.items():
        shown.page.locator("#document-color").select_option(column)
        pairs = {*zip(values, circles.evaluate_all(colors), strict=True)}
        assert len(pairs) == len(set(values)), "a value has one color"
    shown.page.locator("#document-color").select_option("year")
    assert section.locator(".legend > span").all_inner_texts() == ["1900", "1959"]
    assert circles.evaluate_all(colors)[7] == ""
    section.locator('circle[tabindex="0"]').focus()
    shown.page.keyboard.press("ArrowRight")
    shown.page.keyboard.press("ArrowDown")
    label = shown.page.evaluate("document.activeElement.getAttribute('aria-label')")
    shown.page.keyboard.press("Enter")
    topic = int(scatter.topic[int(label.partition(",")[0].removeprefix("d"))])
    assert shown.page.locator("#topic h2").inner_text().startswith(f"Topic {topic}:")
    assert section.locator("circle:not(.other)").count() == scatter.topic.tolist().count(topic)


def test_a_word_is_looked_up(open_report: Open) -> None:
    shown = open_report(20)
    section = shown.view("words")
    shown.page.locator("#word").fill("WORD12")
    assert section.locator("h3").inner_text() == "word12"
    contents = full_contents(20)
    lists = contents.lists
    own = [
        (topic, float(lists.probabilities[topic][place]) * contents.topics[topic].share)
        for topic in range(20)
        for place in (lists.ids[topic] == 12).nonzero()[0]
    ]
    expected = [topic for topic, _ in sorted(own, key=lambda one: -one[1])]
    shown_topics = section.locator("li .topic-button .number").all_inner_texts()
    assert list(map(int, shown_topics[:3])) == expected[:3]
    assert len(shown_topics) == len(expected)
    shown.page.locator("#word").fill("<b>none")
    assert "No topic lists a word with “<b>none”." in section.inner_text()


def test_hostile_words_do_nothing_and_stay_in_their_boxes(open_report: Open) -> None:
    words = [f"{HOSTILE[at % len(HOSTILE)]}{at}{'x' * 300 if at % 7 == 0 else ''}" for at in range(60)]
    shown = open_report("hostile", PHONE, full_contents(6, words))
    for name in VIEWS:
        shown.view(name)
        shown.require_no_wider()
    shown.view("overview")
    for topic in range(6):
        shown.page.locator(f"#topic-{topic} th a").click()
        shown.require_no_wider()
    shown.page.keyboard.press("Escape")
    shown.page.locator("#search").fill("<script>")
    shown.view("words")
    shown.page.locator("#word").fill("<script>alert")
    assert "<script>alert" in shown.page.locator("section#words").inner_text()
    assert shown.page.locator("img").count() == 0


@pytest.mark.slow
def test_groups_without_an_order_are_bars_with_errors(open_report: Open) -> None:
    contents = full_contents(20)
    assert contents.groups is not None
    values = ("<b>bold</b>", "x" * 300, *contents.groups.names[2:])
    groups = replace(contents.groups, column="class", values=values)
    assert not groups.ordered
    for size in (PHONE, DESKTOP):
        shown = open_report("bars", size, replace(contents, groups=groups))
        section = shown.view("groups")
        shown.page.locator("#group-topic").select_option("7")
        widths = section.locator("rect.bar").evaluate_all("bars => bars.map(bar => bar.width.baseVal.value)")
        shares = sorted(groups.shares[:, 7], reverse=True)
        assert [width / widths[0] for width in widths] == pytest.approx(
            [one / shares[0] for one in shares], rel=0.01
        )
        assert section.locator("path.error").count() == 12
        # The heat map: a cell has a color if the interval of its lift does not contain 1.
        cells = section.locator(".cells rect")
        lift = groups.shares / groups.shares.mean(axis=0)
        unlike = abs(lift - 1) > 1.96 * groups.errors / groups.shares.mean(axis=0)
        assert cells.count() == groups.shares.size
        fills = cells.evaluate_all("cells => cells.map(cell => cell.getAttribute('fill'))")
        plain = shown.page.evaluate(
            "getComputedStyle(document.documentElement).getPropertyValue('--cell').trim()"
        )
        order = sorted(range(20), key=lambda topic: -contents.topics[topic].share)
        assert [fill != plain for fill in fills] == unlike[:, order].T.ravel().tolist()
        cells.nth(12 * order.index(3) + 5).hover()
        assert f"{lift[5, 3]:.2f} times the mean" in shown.page.locator(".tooltip").inner_text()
        section.locator("summary").click()
        assert section.locator("table tbody tr").count() == 12
        shown.require_no_wider()
        # Without an order there is no course over time.
        assert shown.page.locator("th[data-column='trend']").count() == 0


@pytest.mark.slow
def test_views_of_several_columns_have_a_line_for_each_group(open_report: Open) -> None:
    contents = full_contents(20)
    years = contents.groups
    assert years is not None
    cells = [replace(years, within=(("party", party, None),)) for party in ("<i>A", "B")]
    cells[1] = replace(cells[1], documents=years.documents - 20)
    parties = replace(years, column="party", values=(*"abcdefghijkl",))
    shown = open_report("views", DESKTOP, replace(contents, views=((parties,), tuple(cells))))
    assert shown.view("groups").locator("path.line").count() == 1
    assert shown.view("groups-2").locator("rect.bar").count() == 12
    section = shown.view("groups-3")
    assert section.locator("h2").inner_text() == "Share of a topic by party and year"
    assert section.locator("path.line").count() == 2
    assert section.locator(".legend.lines").inner_text().split() == ["<i>A", "B"]
    assert section.locator(".points circle").count() == 24
    assert section.locator(".points circle.few").count() == 12
    assert "fewer than 30 documents" in section.inner_text()
    assert section.locator(".cells rect").count() == 24 * 20
    # The topic of one view is that of the others.
    shown.page.locator("#groups-3-topic").select_option("7")
    section.locator("summary").click()
    rows = [row.locator("th, td").all_inner_texts() for row in section.locator(".numbers tbody tr").all()]
    assert [(row[0], row[1]) for row in rows[:2]] == [
        (f"<i>A, {year}", percent(years.shares[place, 7])) for place, year in enumerate((2000, 2001))
    ]
    shown.view("groups")
    assert shown.page.locator("#group-topic").input_value() == "7"
    shown.require_no_wider()


@pytest.mark.slow
def test_a_notebook_shows_the_page_in_a_frame_of_its_own(open_report: Open) -> None:
    """In a page with a policy of its own, as notebook servers have; the frame's scripts run, and reach nothing."""
    frame = ShownReport(render(full_contents(20)), 700)._repr_html_()
    page = f"<!doctype html><meta charset=utf-8><title>n</title><body>{frame}</body>"
    shown = open_report(1)
    shown.page.route(
        "http://notebook.test/",
        lambda route: route.fulfill(
            body=page,
            headers={"Content-Type": "text/html", "Content-Security-Policy": "frame-ancestors 'self'"},
        ),
    )
    shown.page.goto("http://notebook.test/")
    inside = shown.page.frame_locator("iframe")
    inside.locator("#topic-4 th a").click()
    assert inside.locator("#topic h2").inner_text().startswith("Topic 4:")
    inside.locator('nav.parts a[href="#map"]').click()
    assert inside.locator("#map svg circle").count() == 20
    assert shown.page.evaluate("document.querySelector('iframe').contentDocument") is None


@pytest.mark.slow
def test_print_has_all_parts(open_report: Open) -> None:
    shown = open_report(20)
    shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    shown.page.emulate_media(media="print")
    for name in VIEWS:
        assert shown.page.locator(f"section#{name}").is_visible()
    assert shown.page.locator("#map svg circle").count() == 20
    assert not shown.page.locator("nav.parts").is_visible()


def test_without_scripts_the_table_and_what_is_known_of_the_model_are_there(open_report: Open) -> None:
    shown = open_report(20, java_script_enabled=False)
    assert shown.page.locator("table.topics tbody tr").count() == 20
    assert shown.page.locator("section#trust").is_visible()
    assert not shown.page.locator("section#map").is_visible()
    assert "Without scripts" in shown.page.locator("noscript").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_of_accessibility(open_report: Open, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    # The page's policy keeps tests' scripts out too; what is looked at does not depend on it.
    shown = open_report(20, color_scheme=scheme, bypass_csp=True)
    shown.page.locator("#topic-4 th a").click()
    for name in VIEWS:
        shown.view(name)
        found = axe.Axe().run(shown.page).response["violations"]
        serious = [
            (fault["id"], fault["nodes"][0]["html"][:200], fault["nodes"][0].get("failureSummary"))
            for fault in found
            if fault["impact"] in ("serious", "critical")
        ]
        assert serious == []


@pytest.fixture(scope="module")
def edited(pages: Path) -> tuple[sj.TopicModel, Path]:
    model, shares = edited_model(pages)
    sj.report(model, pages / "edited.html", shares=shares)
    return model, shares


NUMBERS = [2, 3, 4, 5]


class Numbered:
    """The page of a model with merged and hidden topics."""

    def __init__(self, shown: Any, model: sj.TopicModel, shares: Path) -> None:
        self.shown, self.page, self.model, self.shares = shown, shown.page, model, shares
        self.title, self.tooltip = shown.page.locator("#topic-title"), shown.page.locator(".tooltip")

    def is_selected(self, number: int) -> None:
        assert self.title.inner_text().startswith(f"Topic {number}: ")
        assert self.page.url.endswith(f"#topic-{number}")
        assert "selected" in (self.page.locator(f"#topic-{number}").get_attribute("class") or "")

    def in_the_table(self) -> None:
        page = self.page
        assert sorted(self.shown.rows()) == NUMBERS
        for number in NUMBERS:
            page.locator(f"#topic-{number} th a").click()
            self.is_selected(number)
            course = page.locator("#topic svg.sparkline").get_attribute("aria-label")
            assert course.startswith(f"Share of topic {number} by year, {YEARS[0]} to {YEARS[-1]}: ")
            others = page.locator("#topic .topic-button .number").all_inner_texts()
            assert set(map(int, others)) <= {*NUMBERS} - {number}
            documents = page.locator("#topic .documents > li > p:first-child .word").all_inner_texts()
            assert documents == self.model.documents(self.shares, number)["document_id"].tolist()

    def on_the_map(self) -> None:
        for circle in self.shown.view("map").locator("circle").all():
            number = int(circle.get_attribute("aria-label").split()[1])
            circle.dispatch_event("pointerenter", {"clientX": 5, "clientY": 5})
            assert self.tooltip.inner_text().startswith(f"Topic {number} ")
            circle.dispatch_event("click")
            self.is_selected(number)

    def in_the_square(self) -> None:
        section = self.shown.view("together")
        arrays = shown_topics(self.model, ("topic_probability", "topic_topic")).model.arrays
        given = conditional(arrays["topic_topic"])
        order = [int(text.split()[0]) for text in section.locator(".row-labels text").all_text_contents()]
        assert sorted(order) == NUMBERS
        canvas = section.locator("canvas")
        size = canvas.bounding_box()["width"] / len(NUMBERS)
        for row, first in enumerate(order):
            for column, second in enumerate(order):
                at = {"x": (column + 0.5) * size, "y": (row + 0.5) * size}
                canvas.hover(position=at)
                lines = self.tooltip.locator("p, strong").all_inner_texts()
                if first == second:
                    assert lines[0].startswith(f"{first} ")
                    continue
                assert (lines[0].split()[0], f" and {second} " in lines[0]) == (str(first), True)
                share = percent(given[NUMBERS.index(first), NUMBERS.index(second)])
                assert lines[2] == f"where topic {first} occurs, {share} of the text is of topic {second}"
            canvas.click(position=at)
            self.is_selected(first)

    def in_the_groups(self) -> None:
        section = self.shown.view("groups")
        for number in NUMBERS:
            self.page.locator("#group-topic").select_option(str(number))
            self.is_selected(number)
            chart = section.locator(".chart:not(.heat) svg").get_attribute("aria-label")
            assert chart.startswith(f"Share of topic {number} ")
        rows = [
            int(text.split()[0]) for text in section.locator(".heat .row-labels text").all_text_contents()
        ]
        assert sorted(rows) == NUMBERS
        for row, number in enumerate(rows):
            cell = section.locator(".cells rect").nth(row * (len(YEARS) + 1))
            cell.dispatch_event("pointermove", {"clientX": 5, "clientY": 5})
            assert self.tooltip.inner_text().startswith(f"{number} ")
            cell.dispatch_event("click")
            self.is_selected(number)

    def of_words(self) -> None:
        for button in self.shown.view("words").locator(".topic-button").all():
            button.click()
            self.is_selected(int(button.locator(".number").inner_text()))


@pytest.mark.slow
def test_merged_and_hidden_topics_have_their_numbers_everywhere(
    open_report: Open, edited: tuple[sj.TopicModel, Path]
) -> None:
    numbered = Numbered(open_report("edited"), *edited)
    numbered.in_the_table()
    numbered.on_the_map()
    numbered.in_the_square()
    numbered.in_the_groups()
    numbered.of_words()
    page = numbered.page
    page.reload()
    numbered.is_selected(int(page.url.rpartition("-")[2]))
    page.keyboard.press("Escape")
    assert page.url.endswith("#overview")
    page.goto(f"{page.url.partition('#')[0]}#topic-1")
    assert not page.locator("#topic").is_visible(), "topic 1 was merged into topic 4"


@pytest.mark.slow
def test_documents_without_a_date_are_in_no_period_and_trends_are_those_of_over_time(
    open_report: Open, edited: tuple[sj.TopicModel, Path]
) -> None:
    model, shares = edited
    shown = open_report("edited")
    page = shown.page
    frame = model.over_time("year", shares)
    change = frame.drop_duplicates("topic").set_index("topic")["change"]
    for number in NUMBERS:
        told = float(page.locator(f"#topic-{number} td.trend").get_attribute("data-value"))
        assert told == pytest.approx(change[number], rel=1e-4)
    page.locator('th[data-column="trend"] button').click()
    by_change = change.sort_values(ascending=False).index.tolist()
    assert shown.rows() == by_change
    section = shown.view("groups")
    listed = [int(text.split()[0]) for text in section.locator("table.changes tbody th").all_inner_texts()]
    risen = [number for number in by_change if change[number] > 0]
    assert listed == [*risen, *reversed(by_change[len(risen) :])]
    assert f"{UNDATED} documents have no value of year" in section.inner_text()
    points = section.locator(".points circle")
    assert points.count() == len(YEARS)
    for point, year in zip(points.all(), YEARS, strict=True):
        point.dispatch_event("pointerenter", {"clientX": 5, "clientY": 5})
        assert page.locator(".tooltip").inner_text().startswith(f"{year}\n")
    assert section.locator(".cells rect").count() == len(NUMBERS) * (len(YEARS) + 1)
    section.locator("summary").click()
    rows = [row.locator("th, td").all_inner_texts() for row in section.locator(".numbers tbody tr").all()]
    assert [row[0] for row in rows] == [*map(str, YEARS), "not known"]
    assert rows[-1][3] == str(UNDATED)
    first = int(page.locator("#group-topic").input_value())
    for row, expected in zip(rows, frame[frame["topic"] == first].itertuples(), strict=False):
        assert row[1:4] == [
            percent(expected.share),
            percent(expected.standard_error),
            str(expected.documents),
        ]
