"""The workflows of GitHub: what they run exists, on every supported Python and both architectures."""

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
yaml: Any = pytest.importorskip("yaml")


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))


def steps(job: Any, key: str) -> list[Any]:
    return [step[key] for step in job["steps"] if key in step]


def needed(job: Any) -> list[str]:
    """The jobs that a job waits for: GitHub takes one name, or a list."""
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def test_every_supported_python_on_both_architectures() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    matrix = workflow("test")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == supported
    assert matrix["os"] == ["ubuntu-latest", "ubuntu-24.04-arm"]
    check = workflow("release")["jobs"]["check"]
    assert check["strategy"]["matrix"]["os"] == matrix["os"]
    pythons = [step["python-version"].split() for step in steps(check, "with") if "python-version" in step]
    assert pythons == [supported]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_and_needed_jobs_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    for job in jobs.values():
        called = [target for run in steps(job, "run") for target in re.findall(r"\bmake ([a-z-]+)", run)]
        assert set(called) <= set(targets)
        assert set(needed(job)) <= set(jobs)
        assert "timeout-minutes" in job or "environment" in job


def test_only_the_publishing_job_has_a_token_of_pypi() -> None:
    release = workflow("release")
    assert release["permissions"] == {"contents": "read"}
    granted = {name: job["permissions"] for name, job in release["jobs"].items() if "permissions" in job}
    assert granted == {"publish": {"id-token": "write"}}
    publish = release["jobs"]["publish"]
    assert publish["environment"] == "pypi"
    assert publish["needs"] == "build"
    assert release["jobs"]["build"]["needs"] == "check"


def test_what_is_published_is_built_from_one_index() -> None:
    release = workflow("release")
    assert "env" not in release
    assert [name for name, job in release["jobs"].items() if "PIP_EXTRA_INDEX_URL" in str(job)] == ["check"]


def test_needed_jobs_are_one_name_or_a_list() -> None:
    assert [needed(job) for job in ({}, {"needs": "a"}, {"needs": ["a", "b"]})] == [[], ["a"], ["a", "b"]]


def test_the_tag_is_compared_with_the_version() -> None:
    (command,) = steps(workflow("release")["jobs"]["version"], "run")
    (expression,) = re.findall(r"sed -n 's/(.*)/\\1/p'", command)
    version = import_module("valueshare").__version__
    text = (ROOT / "src" / "valueshare" / "_version.py").read_text(encoding="utf-8")
    assert re.findall(expression.replace(r"\(", "(").replace(r"\)", ")"), text, re.MULTILINE) == [version]
