"""Everything users can see is as recorded in features.json; see ``features``."""

from __future__ import annotations

import json

from tests import features


def test_features_are_as_recorded() -> None:
    changed = features.differences(
        json.loads(features.RECORDED.read_text(encoding="utf-8")), features.features()
    )
    assert not changed, (
        f"{len(changed)} features changed; if that is intended, run python -m tests.features --write, and tell in "
        "CHANGELOG what users have to change:\n" + "\n".join(changed)
    )
