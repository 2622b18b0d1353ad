"""Corpora, moments, models and counts are as recorded in golden.json: see ``golden`` for what is compared where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import golden
from tests.observations import Observed, array, bits, differences, moments_contents

CASES = {case.name: case for case in golden.cases()}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[golden.Stores]:
    return golden.Stores(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def same_platform() -> bool:
    return golden.recorded()["platform"] == golden.platform()


def check(name: str, found: Observed, same_platform: bool) -> None:
    wrong = differences(golden.recorded()["cases"][name], found, same_platform)
    assert not wrong, f"{len(wrong)} observations of '{name}' are not as recorded:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_recorded(
    name: str, stores: golden.Stores, same_platform: bool, tmp_path: Path
) -> None:
    check(name, CASES[name].observe(tmp_path, stores), same_platform)


def test_each_recorded_case_is_looked_at() -> None:
    assert golden.recorded()["cases"].keys() == CASES.keys()


def test_differences_are_seen_on_this_platform_and_on_others() -> None:
    values = np.random.default_rng(0).normal(size=(50, 4))
    then: Observed = {
        "a": array(values),
        "n": {"numbers": {"/x": 1.0}},
        "b": bits(1),
        "i": array(np.arange(3)),
    }

    def unlike(name: str, now: dict[str, object], same_platform: bool) -> bool:
        return bool(differences(then, {**then, name: now}, same_platform))

    assert not differences(then, then, same_platform=True)
    turned = values @ np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    for name, now, here, elsewhere in (
        ("a", array(-values), True, False),
        ("a", array(turned), True, False),
        ("a", array(values[::-1]), True, True),
        ("a", array(values.astype(np.float32)), True, True),
        ("n", {"numbers": {"/x": 1.00001}}, True, False),
        ("n", {"numbers": {"/x": 1.001}}, True, True),
        ("n", {"numbers": {"/y": 1.0}}, True, True),
        ("b", bits(2), True, False),
        ("i", array(np.arange(3)[::-1]), True, True),
    ):
        assert (unlike(name, now, True), unlike(name, now, False)) == (here, elsewhere), (name, now)
    assert differences(then, {}, same_platform=False) == ["a: gone", "b: gone", "i: gone", "n: gone"]


@pytest.mark.slow
def test_a_scan_in_processes_is_as_recorded(stores: golden.Stores, same_platform: bool) -> None:
    store = stores.scanned("in-processes", *golden.KEPT, scheduler="processes")
    check("scan kept", moments_contents(store), same_platform)
