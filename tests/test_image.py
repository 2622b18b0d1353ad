"""The image of clusters: its packages are locked with hashes, and the manifest of Kubernetes is consistent."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.doc_blocks import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("s3", "gcs", "azure", "dashboard")
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
#: Each package of the lock with its version, and what follows it.
LOCKED = {
    canonicalize_name(name): (version, rest)
    for name, version, rest in re.findall(r"^(\S+?)==(\S+)(.*(?:\n    .*)*)", LOCK, re.MULTILINE)
}


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_the_lock_satisfies_what_is_declared(extra: str) -> None:
    wanted = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    for requirement in map(Requirement, wanted):
        version, _ = LOCKED[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_every_package_of_the_lock_has_hashes() -> None:
    assert len(LOCKED) > 50
    assert LOCK.count("==") - LOCK.split("\n")[1].count("==") == len(LOCKED)
    for name, (_, rest) in LOCKED.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", rest), name
    for extra in EXTRAS:
        assert f"--extra {extra}" in LOCK.split("\n")[1]


def test_the_image_pins_its_base_and_installs_the_source_last() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^FROM python:3\.12-slim@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    locked, source = text.index("--require-hashes"), text.index("COPY streaming_jsmf")
    assert (
        text.index("COPY requirements.lock") < locked < source < text.index("--no-deps --no-build-isolation")
    )


def test_the_parts_of_the_manifest_fit_together() -> None:
    parts = [*yaml.safe_load_all((ROOT / "docs" / "kubernetes.yaml").read_text(encoding="utf-8"))]
    named = {(part["kind"], part["metadata"]["name"]): part for part in parts}
    service = named["Service", "topics-scheduler"]["spec"]
    pods = {
        name: part["spec"]["template"]
        for (_, name), part in named.items()
        if "template" in part.get("spec", {})
    }
    assert set(pods) == {"topics-scheduler", "topics-worker", "topics-fit"}
    assert service["selector"] == pods["topics-scheduler"]["metadata"]["labels"]
    address = f"tcp://topics-scheduler:{service['ports'][0]['port']}"
    for name, pod in pods.items():
        [container] = pod["spec"]["containers"]
        assert container["image"] == "REGISTRY/streaming-jsmf"
        assert pod["spec"]["serviceAccountName"] in {name for kind, name in named if kind == "ServiceAccount"}
        assert (address in container["args"]) == (name != "topics-scheduler")
        for source in container.get("envFrom", ()):
            assert ("Secret", source["secretRef"]["name"]) in named
    workers = named["Deployment", "topics-worker"]["spec"]["replicas"]
    arguments = pods["topics-fit"]["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--workers") + 1] == str(workers)
