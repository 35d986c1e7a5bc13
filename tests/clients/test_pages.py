"""Does every block of ``docs/clients.md`` work as it stands?"""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from record import figure

PAGE = Path(__file__).parents[2] / "docs/clients.md"
PACKAGES = {
    "curl": (),
    "OpenAI SDK": ("openai",),
    "Anthropic SDK": ("anthropic",),
    "lm-eval": ("lm_eval", "transformers"),
    "GuideLLM": ("guidellm",),
    "LangChain": ("langchain_openai", "langchain_anthropic"),
    "Coding agents": ("openai", "anthropic"),
}
SHOWN = {
    "curl": "data: [DONE]",
    "lm-eval": "|Yaml",
    "GuideLLM": "Benchmarking complete",
}
"""What stands in the output of at least the last block of a section."""


def blocks() -> list[tuple[str, str, str]]:
    """(section, language, text) of each block that is run."""
    found = []
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title = section.split("\n", 1)[0]
        for language, text in re.findall(r"^```(sh|python)\n(.*?)^```$", section, re.S | re.M):
            found.append((title, language, text))
    return found


@pytest.mark.parametrize(
    ("section", "language", "text"),
    blocks(),
    ids=[f"{section}-{number}" for number, (section, _, _) in enumerate(blocks())],
)
def test_a_block_works_as_it_stands(
    service: str,
    tmp_path: Path,
    figures: list[dict[str, object]],
    section: str,
    language: str,
    text: str,
) -> None:
    for package in PACKAGES[section]:
        if find_spec(package) is None:
            pytest.skip(f"needs {package}: nox -s clients")
    here = text.replace("http://127.0.0.1:8000", service)
    command = ["bash", "-euo", "pipefail", "-c", here]
    if language == "python":
        command = [sys.executable, "-c", here]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **offline, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip()
    assert SHOWN.get(section, "") in done.stdout
    versions = {name: version(name.replace("_", "-")) for name in PACKAGES[section]}
    if section == "lm-eval":
        figures += [figure(*row, versions=versions) for row in judged(done.stdout)]
    elif section == "GuideLLM":
        figures.append(figure(*loaded(tmp_path / "guidellm.json"), versions=versions))
    else:
        figures.append(figure(f"clients.block[{section}]", 1, "works", versions=versions))


def judged(table: str) -> list[tuple[str, float, str]]:
    """Tasks and metrics of lm-eval's table, with their values."""
    rows = re.findall(r"^\|(\w+) *\|Yaml .*\| *(\w+) *\|.\s*\| *([\d.]+)\|±", table, re.MULTILINE)
    assert rows, table
    return [(f"clients.lm_eval[{task}.{metric}]", float(value), "") for task, metric, value in rows]


def loaded(file: Path) -> tuple[str, int, str]:
    """Requests that GuideLLM says succeeded; its times are those of whatever machine runs this."""
    [benchmark] = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (totals["total"], 0)
    return "clients.guidellm", totals["successful"], "requests succeeded"


def test_every_section_with_blocks_says_what_it_needs() -> None:
    assert {section for section, _, _ in blocks()} == PACKAGES.keys()
