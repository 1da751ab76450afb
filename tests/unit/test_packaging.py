"""What pip installs: extras, and pins that each Python of the CI can have."""

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOCKS = {"requirements.lock": PROJECT["dependencies"], "requirements-test.lock": EXTRAS["test"]}
PYTHONS = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"][
    "strategy"
]["matrix"]["python"]


def needed(lines: list[str], python: str) -> list[Requirement]:
    """Those of the requirements that count for a Python."""
    on = {"python_version": python, "python_full_version": f"{python}.9"}
    every = [Requirement(line) for line in lines]
    return [one for one in every if one.marker is None or one.marker.evaluate(on)]


def pinned(lock: str, python: str) -> dict[str, str]:
    """{package: its version} that a lock has for a Python."""
    lines = re.findall(r"^([A-Za-z0-9].*?) \\$", (ROOT / lock).read_text(), re.MULTILINE)
    found: dict[str, str] = {}
    for one in needed(lines, python):
        assert one.name not in found, f"{lock} has two versions of {one.name} for {python}"
        (pin,) = one.specifier
        found[one.name] = pin.version
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_ci_runs_on_each_python_that_the_package_names() -> None:
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"]]
    assert named == PYTHONS == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_each_python_finds_in_the_locks_what_the_package_asks_for(lock: str, python: str) -> None:
    pins = pinned(lock, python)
    for one in needed(LOCKS[lock], python):
        assert one.specifier.contains(pins[normal(one.name)]), f"{one} and {pins[one.name]}"


def test_python_3_11_has_jax_0_10_and_newer_ones_have_0_11() -> None:
    lines = {python: pinned("requirements.lock", python)["jax"][:5] for python in PYTHONS}
    assert lines == {"3.11": "0.10.", "3.12": "0.11.", "3.13": "0.11."}


def test_both_locks_pin_the_same_versions() -> None:
    for python in PYTHONS:
        lab, tests = (pinned(lock, python) for lock in LOCKS)
        assert {name: lab[name] for name in lab.keys() & tests} == {
            name: tests[name] for name in lab.keys() & tests
        }


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "index" not in re.findall(r"^--([a-z]+)", text, re.MULTILINE)


@pytest.mark.parametrize("extra", ["cuda", "tpu"])
def test_an_extra_is_one_that_jax_has(extra: str) -> None:
    (jax,) = (Requirement(line) for line in EXTRAS[extra])
    assert jax.name == "jax"
    assert jax.extras <= set(metadata("jax").get_all("Provides-Extra") or ())
