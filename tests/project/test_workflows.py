"""Workflows, templates and hooks are valid YAML that names what exists; tracked files have usual names."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import cuaug

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
PROJECT = (ROOT / "pyproject.toml").read_text()


def commands(workflow: Path) -> list[str]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_targets_of_the_makefile(workflow):
    assert commands(workflow)
    for command in commands(workflow):
        make, target, *variables = shlex.split(command)
        assert make == "make" and target in TARGETS, command
        for variable in variables:
            assert re.search(rf"^{variable.partition('=')[0]} \?=", MAKEFILE, re.MULTILINE), command


SECURITY_FAULTS = {
    "unpinned-uses": ("3d3c42e5aac5ba805825da76410c181273ba90b1", "v7"),
    "excessive-permissions": ("contents: read", "contents: write"),
    "artipacked": ("persist-credentials: false", "persist-credentials: true"),
    "template-injection": ("make audit PYTHON=python", "echo ${{ github.event.pull_request.title }}"),
}


@pytest.mark.parametrize(
    ("tool", "faults"), [("check-jsonschema", {"run-on": ("runs-on:", "run-on:")}), ("zizmor", SECURITY_FAULTS)]
)
def test_lint_finds_faults_of_workflows(tmp_path, tool, faults):
    text = (ROOT / ".github/workflows/audit.yml").read_text()
    for sound, fault in faults.values():
        assert sound in text
        text = text.replace(sound, fault)
    file = tmp_path / ".github/workflows/audit.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (options,) = re.findall(rf"\$\(BIN\)/{tool} (.*) (?:\.github|\$\(wildcard .*)$", MAKEFILE, re.MULTILINE)
    command = [Path(sys.executable).with_name(tool), *options.split(), file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode and all(name in done.stdout + done.stderr for name in faults)


def test_contributing_names_targets_of_the_makefile():
    named = set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert len(named) >= 5 and named <= TARGETS


def test_every_supported_python_is_tested():
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["everyday"]["strategy"][
        "matrix"
    ]
    oldest = re.findall(r'requires-python = ">=3\.(\d+)"', PROJECT)
    assert matrix["python"] == [*(f"3.{minor}" for minor in range(int(oldest[0]), 15)), "3.14t"]


def test_the_hooks_run_what_lint_runs():
    """Both run the tools of .venv. pyproject.toml pins those whose results change with their version."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in repository["hooks"]}
    assert tools == set(
        re.findall(r"^\t\$\(BIN\)/([\w-]+)", re.search(r"^lint:.*\n((\t.*\n)+)", MAKEFILE, re.M)[1], re.M)
    )
    for tool in tools - {"mypy", "lint-imports"}:
        assert re.search(rf'"{tool}==[\d.]+"', PROJECT), tool


def test_the_citation_has_the_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == cuaug.__version__


@pytest.mark.parametrize("path", sorted((ROOT / ".github").glob("ISSUE_TEMPLATE/*.yml")), ids=lambda path: path.name)
def test_templates_are_forms(path):
    form = yaml.safe_load(path.read_text())
    if path.name != "config.yml":
        assert form["name"] and form["description"] and all(field["attributes"]["label"] for field in form["body"])


def test_files_that_the_policies_name_exist():
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        for path in re.findall(r"\b(?:tests|docs|benchmarks|cuaug|kernels)/[\w./]*", (ROOT / name).read_text()):
            assert (ROOT / path).exists(), f"{name}: {path}"


# --- names of tracked files: one that an editor's or a shell's slip made does not stay --------------------------------

#: Files of the root whose names have no extension, or begin with a dot.
PLAIN = {"LICENSE", "Makefile", ".clang-format", ".gitignore", ".pre-commit-config.yaml"}
#: Extensions of the others, and folders.
SUFFIXES = {".cff", ".in", ".md", ".py", ".toml", ".yml"}


def odd_names(names: list[str]) -> list[str]:
    """Names of characters that need quotes in a shell, and files of the root of no known kind."""
    in_root = [name for name in names if "/" not in name and name not in PLAIN and Path(name).suffix not in SUFFIXES]
    return [*in_root, *(name for name in names if not re.fullmatch(r"[\w.][\w.-]*(/[\w.][\w.-]*)*", name, re.ASCII))]


def test_odd_names_are_found():
    odd = ["ith a slash: it may be the file's own folder#", "cuaug/-n", "docs/a b.md", "docs/ü.md", "saved", "x.orig"]
    assert set(odd_names([*odd, "README.md", "docs/a-b.md", ".github/workflows/ci.yml"])) == set(odd)


def test_no_tracked_name_is_odd():
    if not (ROOT / ".git").exists():
        pytest.skip("no repository")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert odd_names(listed.stdout.split("\0")[:-1]) == []
