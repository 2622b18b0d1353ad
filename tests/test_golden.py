"""Corpora, moments, models and counts are as recorded in golden.json: see ``golden`` for what is compared where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import golden
from tests.observations import Observed, differences, moments_contents

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


@pytest.mark.slow
def test_a_scan_in_processes_is_as_recorded(stores: golden.Stores, same_platform: bool) -> None:
    store = stores.scanned("in-processes", *golden.KEPT, scheduler="processes")
    check("scan kept", moments_contents(store), same_platform)
