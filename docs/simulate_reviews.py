"""Simulate reviews of appliances with messy dates, for docs/first_day.md: ``python docs/simulate_reviews.py FOLDER``.

Writes ``reviews.csv``, with 20,000 reviews of 2024, and ``next_week.csv``, with 400 of the first week of 2025. Each has
``review_id``, ``date``, ``company``, ``stars`` and ``text``. The words of a review are drawn from topics, whose shares
follow from its stars, its company and its month, so it is known what an analysis should find: complaints about
deliveries, refunds and defects have few stars, Birch has the most about batteries, and presents are of December. The
dates are written in three ways; 2 % are missing and 1 % are no dates. The same call writes the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: Words of each topic by descending probability.
TOPICS = {
    "delivery": "delivery late parcel courier days waiting driver arrived tracking address neighbour doorstep shipped "
    "package damaged box crushed missing lost depot signed schedule",
    "refund": "refund money return receipt charged card paid account voucher cancel policy label credited invoice fee "
    "bank claim dispute amount payment reimbursed",
    "service": "service phone agent helpful call answer email staff friendly polite queue ticket chat reply manager "
    "patient supervisor hold apologized resolved",
    "battery": "battery charge charger hours empty power cable lasts plug percent overnight drains socket recharge "
    "adapter voltage cordless flat standby indicator",
    "kitchen": "kettle oven toaster mixer kitchen bread dough coffee cake recipe bake whisk blender boil jug crust "
    "batter steam soup grinder",
    "cleaning": "vacuum carpet dust filter floor hair suction bag brush hose clean stairs nozzle rug corner crumbs "
    "sofa mop pets",
    "noise": "noise loud quiet vibration motor hum sleep night rattle decibels fan bedroom silent buzzing whine sound "
    "spinning thumping bearing",
    "assembly": "screws manual instructions assembly fits parts drawer shelf holes tools hinge bracket missing diagram "
    "wobbles panel drill steps legs",
    "defect": "broken stopped leaking warranty repair replacement cracked faulty smoke fuse engineer failed defect "
    "seal dead sparks rust handle",
    "present": "present gift birthday wife mother husband christmas wrapped surprise daughter loved grandson unwrapped "
    "card ribbon anniversary friend smile",
}
#: Words of all topics.
COMMON = (
    "bought product good great time price quality use used well got bit nice ordered works buy months year little need "
    "looks small size colour home made easy model recommend value still store better think new old brand"
)
COMPANIES = ("Alder", "Birch", "Cedar", "Dogwood")
#: What people write instead of a date.
NO_DATES = ("last week", "2024-02-30", "Tuesday", "2024-13-05", "unknown", "31.11.2024")
COMMON_SHARE, MEAN_LENGTH = 0.45, 45


def reviews(number: int, first: str, days: int, seed: int) -> pd.DataFrame:
    """Draw reviews of so many days from the ``first`` on."""
    generator = np.random.default_rng(seed)
    stars = generator.choice(np.arange(1, 6), number, p=[0.16, 0.09, 0.12, 0.25, 0.38])
    company = generator.integers(0, len(COMPANIES), number)
    dates = pd.to_datetime(first) + pd.to_timedelta(np.sort(generator.integers(0, days, number)), unit="D")
    weight = np.zeros((number, len(TOPICS)))
    place = {name: column for column, name in enumerate(TOPICS)}
    for name in ("delivery", "refund", "defect"):
        weight[:, place[name]] += 0.5 * (3 - stars)
    weight[:, place["kitchen"]] += 0.3 * (stars - 3)
    weight[:, place["battery"]] += 1.2 * (company == COMPANIES.index("Birch"))
    weight[:, place["assembly"]] += 0.8 * (company == COMPANIES.index("Dogwood"))
    weight[:, place["present"]] += 2.0 * np.asarray(dates.month == 12)
    shares = generator.gamma(0.15 * np.exp(weight))
    shares /= shares.sum(axis=1, keepdims=True)
    return pd.DataFrame({
        "review_id": [f"{first[:4]}-{row:05d}" for row in range(number)],
        "date": _written(dates, generator),
        "company": np.array(COMPANIES)[company],
        "stars": stars,
        "text": [_text(row, generator) for row in shares],
    })  # fmt: skip


def _text(shares: NDArray[np.float64], generator: np.random.Generator) -> str:
    """Sentences of words that are drawn from the topics and the common words."""
    counts = generator.multinomial(
        max(12, generator.poisson(MEAN_LENGTH)), [COMMON_SHARE, *(1 - COMMON_SHARE) * shares]
    )
    words = [
        word
        for count, listed in zip(counts, (COMMON, *TOPICS.values()), strict=True)
        for word in generator.choice(listed.split(), count, p=_falling(len(listed.split())))
    ]
    generator.shuffle(words)
    sentences = [" ".join(words[start : start + 9]) for start in range(0, len(words), 9)]
    return ". ".join(each.capitalize() for each in sentences) + "."


def _falling(number: int) -> NDArray[np.float64]:
    weight = 1 / np.arange(8, number + 8)
    return np.asarray(weight / weight.sum())


def _written(dates: pd.DatetimeIndex, generator: np.random.Generator) -> list[str]:
    """Dates as several shops and hands write them; some are missing, and some are no dates."""
    ways = ("%Y-%m-%d", "%m/%d/%Y", "%d %b %Y")
    found = []
    for date, way in zip(
        dates, generator.choice(5, len(dates), p=[0.62, 0.25, 0.1, 0.02, 0.01]), strict=True
    ):
        none = "" if way == 3 else str(generator.choice(NO_DATES))
        found.append(date.strftime(ways[way]) if way < 3 else none)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(exist_ok=True, parents=True)
    reviews(20_000, "2024-01-01", 366, seed=1).to_csv(folder / "reviews.csv", index=False)
    reviews(400, "2025-01-01", 7, seed=2).to_csv(folder / "next_week.csv", index=False)
