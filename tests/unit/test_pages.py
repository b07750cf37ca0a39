"""Pages lead where they say, and every page is reached from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        ROOT / "tests/README.md",
        ROOT / "e2e/cluster/README.md",
    ]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def read_prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def find_links(page: Path) -> list[tuple[Path, str]]:
    """File and heading of each link that stays in the repository."""
    links = (link.partition("#") for link in LINK.findall(read_prose(page)) if "://" not in link)
    return [((page.parent / path).resolve() if path else page, name) for path, _, name in links]


def find_anchors(page: Path) -> set[str]:
    """Names of the page's headings as links spell them."""
    headings = re.findall(r"^#+ (.+)$", read_prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    for target, heading in find_links(page):
        assert target.exists(), target
        assert not heading or heading in find_anchors(target), f"{target}#{heading}"


def test_every_page_is_reached_from_the_readme():
    reached = {target for target, _ in find_links(ROOT / "README.md")}
    assert set(ROOT.glob("docs/*.md")) <= reached


def test_the_tutorial_takes_every_definition_away():
    names = [
        yaml.safe_load(path.read_text())["metadata"]["name"] for path in ROOT.glob("crds/*.yaml")
    ]
    commands = re.findall(r"kubectl delete crd ([^`]+)`", (ROOT / "docs/tutorial.md").read_text())
    assert [sorted(command.split()) for command in commands] == [sorted(names)]
