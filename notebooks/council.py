"""Simulated speeches in a town council, for the notebooks: readable, free of rights, with known topics and years."""

from __future__ import annotations

import numpy as np
import pandas as pd

#: Theme -> subjects, verbs, objects, and times or manners.
THEMES = {
    "buses": (
        "bus driver timetable tram passenger conductor commuter cyclist taxi mechanic inspector ferry",
        "serves misses reaches skips crowds leaves delays boards passes stops brakes reroutes",
        "route stop depot corner station lane terminus fare ticket junction platform shelter seat engine "
        "crossing signal",
        "rush-hour morning delay weekend replacement holiday fog detour strike",
    ),
    "schools": (
        "teacher pupil headmaster classroom parent librarian caretaker tutor graduate choir nurse child",
        "teaches needs repairs opens shares orders borrows grades enrols praises reads rehearses",
        "lesson textbook playground canteen homework exam desk blackboard curriculum uniform report gymnasium "
        "scholarship alphabet concert timetable",
        "autumn term breakfast inspection recess assembly kindergarten graduation tutoring",
    ),
    "parks": (
        "gardener tree meadow beekeeper hedgehog botanist squirrel volunteer landscaper hedge sparrow oak",
        "plants shades mows trims protects grows prunes blooms seeds rakes nests fertilises",
        "lawn bench flower path orchard fountain rose pond shrub compost trail greenhouse pavilion sandpit "
        "blossom tulip",
        "spring drought picnic evening leaf sunshine pollen harvest frost",
    ),
    "housing": (
        "tenant landlord builder architect cottage neighbour broker carpenter tower resident lodger bricklayer",
        "rents builds renovates heats insures sells insulates demolishes paints inherits subdivides furnishes",
        "roof kitchen cellar stairway mortgage boiler window balcony facade attic apartment lease scaffold "
        "chimney storey plaster",
        "winter permit contract vacancy deposit subsidy eviction renovation heating",
    ),
    "water": (
        "river plumber reservoir dyke engineer beaver barge hydrologist pump fisherman creek lifeguard",
        "floods leaks drains pumps carries measures dredges chlorinates overflows filters spills swells",
        "sewer bridge valve meter basement bank canal pipe weir sandbag gauge culvert embankment hydrant delta "
        "estuary",
        "storm night pressure level rainfall thaw tide cloudburst contamination",
    ),
    "screens": (
        "phone camera app tablet network chatbot programmer hacker robot drone startup influencer",
        "records predicts downloads charges connects updates streams encrypts scrolls scans deletes uploads",
        "password screen server message battery keyboard account browser software website algorithm database "
        "cable printer sensor invoice",
        "online digital automatic wireless artificial virtual remote interactive electronic",
    ),
}

#: The first sentence of every speech.
OPENING = "Madam chair, dear colleagues, let me be brief."

YEARS = range(2000, 2024)


def weights(year: int) -> dict[str, float]:
    """Planned shares of the themes in a year: screens rise, buses fall, and floods raise water in three years."""
    late = (year - YEARS[0]) / (len(YEARS) - 1)
    planned = {
        "buses": 2.2 - 1.8 * late,
        "schools": 1.0,
        "parks": 0.8,
        "housing": 1.0,
        "water": 2.5 if year in (2006, 2007, 2017) else 0.5,
        "screens": 0.1 + 2.2 * late**2,
    }
    total = sum(planned.values())
    return {theme: weight / total for theme, weight in planned.items()}


def speeches(count: int = 1200, seed: int = 0) -> pd.DataFrame:
    """Simulate speeches with ``text``, ``year``, ``ward`` and ``theme``, the most frequent theme of the speech."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        year = int(random.choice(YEARS))
        planned = weights(year)
        shares = random.dirichlet([planned[theme] for theme in THEMES])
        drawn = [str(random.choice(list(THEMES), p=shares)) for _ in range(int(random.integers(6, 13)))]
        text = " ".join([OPENING, *(sentence(theme, random) for theme in drawn)])
        main = max(THEMES, key=drawn.count)
        rows.append((text, year, f"ward {random.integers(1, 6)}", main))
    return pd.DataFrame(rows, columns=["text", "year", "ward", "theme"])


def sentence(theme: str, random: np.random.Generator) -> str:
    """Draw a sentence about a theme."""
    who, does, what, when = (words.split() for words in THEMES[theme])
    first, second = random.choice(what, 2, replace=False)
    subject, verb, occasion = (random.choice(words) for words in (who, does, when))
    return f"The {subject} {verb} the {first} and the {second}; think of the {occasion}."
