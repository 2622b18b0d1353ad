"""Take the pictures of reports in ``docs/images``, of models of the speeches that ship with the project.

    python docs/take_pictures.py [--chromium /usr/bin/chromium]

Needs playwright and a Chromium.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from playwright.sync_api import sync_playwright

import streaming_jsmf as sj

DOCS = Path(__file__).parent
SPEECHES = DOCS.parent / "data_specs" / "un_general_debate_sample"


def reports(folder: Path) -> dict[str, Path]:
    """Reports of 20 topics with documents, of 60 topics, and of models of several K."""
    model = sj.fit(SPEECHES, folder / "UN", 20)
    corpus = folder / "UN.corpus"
    sj.evaluate(model, corpus=corpus)
    sj.transform(model, corpus, folder / "shares.parquet")
    sj.fit(corpus, folder / "UN 60", 60)
    sj.fit(corpus, folder / "UN several", [10, 20, 50])
    return {
        "one": sj.report(model, folder / "one.html", shares=folder / "shares.parquet", by="year"),
        "many": sj.report(folder / "UN 60", folder / "many.html"),
        "several": sj.report(folder / "UN several", folder / "several.html", topics=50),
    }


def topic_with_documents(page: Any) -> None:
    page.locator("table.topics tbody tr").nth(2).locator("th a").click()
    page.locator("#topic ol.documents").evaluate(
        "list => { list.parentElement.scrollTop = list.offsetTop - 120; }"
    )


#: Name of a picture -> report, part of the page, size, what is done first.
PICTURES: dict[str, tuple[str, str, tuple[int, int], Callable[[Any], None] | None]] = {
    "report": ("one", "overview", (1280, 800), None),
    "report_topic": ("one", "overview", (1280, 900), topic_with_documents),
    "report_map": ("many", "map", (1180, 858), None),
    "report_together": ("one", "together", (1180, 858), None),
    "report_levels": ("several", "levels", (1180, 874), None),
}


@click.command(help=__doc__)
@click.option("--chromium", default=shutil.which("chromium"), help="Path of the browser.")
def main(chromium: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        made = reports(Path(folder))
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (report, part, (width, height), prepare) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(f"{made[report].as_uri()}#{part}")
            page.wait_for_timeout(1000)
            if prepare is not None:
                prepare(page)
                page.wait_for_timeout(500)
            page.screenshot(path=DOCS / "images" / f"{name}.png")
            if name == "report":  # of the front page, which follows the reader's setting
                page.emulate_media(color_scheme="dark")
                page.wait_for_timeout(500)
                page.screenshot(path=DOCS / "images" / f"{name}_dark.png")
        browser.close()


if __name__ == "__main__":
    main()
