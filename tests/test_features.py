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


def test_the_names_that_a_message_offers() -> None:
    assert features.offered("unknown key x; allowed: b, a") == ["a", "b"]
    assert features.offered("unknown key x; allowed: vocabulary") == ["vocabulary"]
    assert features.offered("give one of b, a, or an address such as tcp://HOST") == ["a", "b"]
    assert features.offered("input should be 'b', 'c' or 'a', not 'x'") == ["a", "b", "c"]
