"""Response times of a report: ``python -m benchmarks.report_interaction 20 100 200``.

Opens reports of artificial topics in Chromium (playwright, with Chromium on the path) and prints the median for each
interaction: milliseconds of CPU time of the main thread of the page, and wall time from the event to the next frame,
which other load on the machine increases.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from streaming_jsmf.reporting.page import render
from tests.report_pages import full_contents

#: Runs in the page: dispatches an event and waits until the next frame has been painted.
_TO_PICTURE = """
async ([selector, kind, value]) => {
  const target = document.querySelector(selector);
  await new Promise((done) => setTimeout(done, 50));
  const start = performance.now();
  if (kind === "click") target.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
  else {
    target.value = value;
    target.dispatchEvent(new Event(kind, { bubbles: true }));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}
"""

#: Name, view, selector, event type, and values used in turn.
Interaction = tuple[str, str, str, str, tuple[str, ...]]

FIRST_LOOKS = ("map", "together", "words", "groups", "levels", "trust")

INTERACTIONS: tuple[Interaction, ...] = (
    ("sort by share", "overview", 'th[data-column="share"] button', "click", ("",)),
    ("sort by words", "overview", 'th[data-column="words"] button', "click", ("",)),
    ("details of all topics", "overview", "#controls > button", "click", ("",)),
    ("find topics", "overview", "#search", "input", ("word1", "word17", "", "no such word", "")),
    ("select a topic", "overview", "{row}", "click", ("",)),
    ("order of its words", "overview", "#lambda", "input", ("0.6", "0", "1")),
    ("all its words", "overview", "#topic .more", "click", ("",)),
    ("select on the map", "map", ".map circle:nth-child({turn})", "click", ("",)),
    ("zoom the map", "map", '.zoom button[aria-label="Zoom in"]', "click", ("",)),
    ("size of the cells", "together", "#cell-size", "input", ("9", "16", "5")),
    ("merge topics", "together", "#merge-level", "input", ("5", "30", "14")),
    ("a word", "words", "#word", "input", ("w", "word1", "word12", "")),
    ("go to the map", "overview", 'nav.parts a[href="#map"]', "click", ("",)),
    ("go to the correlations", "overview", 'nav.parts a[href="#together"]', "click", ("",)),
    ("go to the topics", "map", 'nav.parts a[href="#overview"]', "click", ("",)),
    ("go to several K", "overview", 'nav.parts a[href="#levels"]', "click", ("",)),
)


def busy_of(page: Any) -> Callable[[], float]:
    """A function that returns the CPU milliseconds of the page's main thread so far."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(metric["value"] for metric in found if metric["name"] == "TaskDuration")

    return busy


def measured(
    page: Any, busy: Callable[[], float], interaction: Interaction, times: int
) -> list[tuple[float, float]]:
    _, view, selector, kind, values = interaction
    found = []
    for turn in range(times):
        page.locator(f'nav.parts a[href="#{view}"]').click()
        place = selector.format(row=f"#topic-{3 * turn} th", turn=turn + 1)
        page.wait_for_timeout(50)
        before = busy()
        clock = page.evaluate(_TO_PICTURE, [place, kind, values[turn % len(values)]])
        found.append((busy() - before, clock))
    return found


def measured_page(browser: Any, path: Path, times: int, say: Callable[[str], None]) -> None:
    """Print a line per interaction; the first visit of each view is measured separately, because it draws the view."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(path.as_uri())
    busy = busy_of(page)
    for name in FIRST_LOOKS:
        first = (f"first look: {name}", "overview", f'nav.parts a[href="#{name}"]', "click", ("",))
        say(line(first[0], measured(page, busy, first, 1)))
    for interaction in INTERACTIONS:
        say(line(interaction[0], measured(page, busy, interaction, times)))
    page.close()


def line(name: str, found: list[tuple[float, float]]) -> str:
    processor, clock = zip(*found, strict=True)
    return (
        f"{name:26}{statistics.median(processor):10.0f}{max(processor):10.0f}{statistics.median(clock):10.0f}"
    )


def run(sizes: list[int], times: int, say: Callable[[str], None] = print) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for n_topics in sizes:
            path = Path(folder) / f"{n_topics}.html"
            path.write_text(render(full_contents(n_topics)), encoding="utf-8")
            say(f"\nK = {n_topics}, {path.stat().st_size / 1e6:.2f} MB")
            say(f"{'':26}{'CPU ms':>10}{'largest':>10}{'clock ms':>10}")
            measured_page(browser, path, times, say)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topics", type=int, nargs="*", default=[20, 100, 200])
    parser.add_argument("--times", type=int, default=7, help="repeats of each interaction")
    arguments = parser.parse_args()
    run(arguments.topics, arguments.times)
