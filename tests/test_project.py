"""The files of the project that no code imports: workflows, forms for issues, the policies."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest

from tests.folders import ROOT
from tests.order import LONGEST

yaml = pytest.importorskip("yaml")
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / name).read_text("utf-8"))
    return found


def steps(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in document["jobs"].values() for step in job["steps"]]


def test_the_tests_run_on_every_python_and_spark_that_is_supported() -> None:
    jobs = workflow("ci.yml")["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert jobs["test"]["strategy"]["matrix"]["python"] == named
    makefile = (ROOT / "Makefile").read_text("utf-8")
    sparks = re.search(r"^SPARKS := (.*)$", makefile, re.MULTILINE)
    assert sparks is not None
    assert jobs["spark"]["strategy"]["matrix"]["spark"] == sparks[1].split()


@pytest.mark.parametrize("name", ["ci.yml", "docs.yml", "release.yml"])
def test_every_target_that_a_workflow_makes_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    runs = [str(step.get("run", "")) for step in steps(workflow(name))]
    targets = re.findall(r"^make (\w+)", "\n".join(runs), re.MULTILINE)
    assert name == "release.yml" or targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_no_more_unless_a_job_says_so(path: Any) -> None:
    document = workflow(path.name)
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert "timeout-minutes" in job
    for step in steps(document):
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_a_release_is_published_without_a_token_and_attested() -> None:
    text = (GITHUB / "workflows" / "release.yml").read_text("utf-8")
    publish = workflow("release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    uses = [step["uses"].partition("@")[0] for step in publish["steps"]]
    assert "actions/attest-build-provenance" in uses
    assert "pypa/gh-action-pypi-publish" in uses
    assert "secrets." not in text


def test_workflows_pass_actionlint() -> None:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("no actionlint on the PATH: the workflow ci.yml runs it")
    done = subprocess.run(
        [program, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_who_reports_a_fault_is_asked_for_doctor() -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "fault.yml").read_text("utf-8"))
    [doctor] = [each for each in form["body"] if each.get("id") == "doctor"]
    assert doctor["validations"]["required"] is True
    assert "skipstone doctor" in doctor["attributes"]["description"]


def test_the_policies_are_there() -> None:
    assert "vulnerability" in (ROOT / "SECURITY.md").read_text("utf-8")
    policy = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    assert "tests/compatibility" in policy
    assert "semver.org" in policy


def test_the_modules_that_begin_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
