"""Pages lead where they say, and every page is reached from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
import yaml

from fakes.metric_catalogue import list_families, list_series
from modelcache_api.cures import CURES, NOTHING
from modelcache_api.names import Reason
from modelcache_cli.__main__ import app

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
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


def list_nav(items: list) -> list[str]:
    """Pages of the site's navigation, in its order."""
    values = [value for item in items for value in item.values()]
    return [page for v in values for page in (list_nav(v) if isinstance(v, list) else [v])]


def test_every_page_is_reached_from_the_readme_over_the_index():
    index = ROOT / "docs/index.md"
    assert index in {target for target, _ in find_links(ROOT / "README.md")}
    reached = {target for target, _ in find_links(index)} | {index}
    assert set(ROOT.glob("docs/*.md")) <= reached


def test_the_site_shows_every_page_once():
    pages = list_nav(SITE["nav"])
    assert sorted(pages) == sorted(page.name for page in ROOT.glob("docs/*.md"))


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_pages_of_the_site_link_to_each_other_alone(page):
    for target, _ in find_links(page):
        assert target.is_relative_to(ROOT / "docs"), target


def test_troubleshooting_leads_to_every_reason_that_asks_for_something():
    page = ROOT / "docs/troubleshooting.md"
    words = re.findall(r"\[(\w+)\]\(reasons\.md#(\w+)\)", page.read_text())
    assert all(word.lower() == anchor for word, anchor in words)
    asking = {reason.value for reason in Reason if CURES[reason] != NOTHING}
    told = {word for word, _ in words}
    assert asking <= told <= set(Reason)


def test_every_metric_that_pages_name_exists():
    known = {*list_families(), *list_series()}
    for page in ROOT.glob("docs/*.md"):
        for name in re.findall(
            r"\bmodelcache_(?:agent|cache|limit|node|operator|quota|version)_[a-z_]+",
            page.read_text(),
        ):
            assert name in known, f"{page.name}: {name}"


def test_every_command_that_pages_name_exists():
    root = typer.main.get_command(app)
    names = {*root.list_commands(None), *(name for option in root.params for name in option.opts)}
    for page in [*ROOT.glob("docs/*.md"), ROOT / "README.md"]:
        for name in re.findall(r"kubectl modelcache ([a-z-]+)", page.read_text()):
            assert name in names, f"{page.name}: kubectl modelcache {name}"


def test_the_tutorial_takes_every_definition_away():
    names = [
        yaml.safe_load(path.read_text())["metadata"]["name"] for path in ROOT.glob("crds/*.yaml")
    ]
    commands = re.findall(r"kubectl delete crd ([^`]+)`", (ROOT / "docs/tutorial.md").read_text())
    assert [sorted(command.split()) for command in commands] == [sorted(names)]


# Files and a driver whose names look like values of the chart.
NOT_VALUES = {"agent.sock", "host.json", "scrub.json", "csi.modelcache.io"}


def list_values() -> set[str]:
    """Paths of the chart's values as pages write them: whole, or from the profile on."""
    page = (ROOT / "docs/values.md").read_text()
    paths = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    paths |= {path.removeprefix("agent.profiles[].") for path in paths}
    folders = {path[: found.start()] for path in paths for found in re.finditer(r"\.", path)}
    return {path.replace("[]", "") for path in paths | folders}


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_every_value_of_the_chart_that_a_page_names_exists(page):
    values = list_values()
    sections = {path.partition(".")[0] for path in values}
    named = re.findall(r"`((?:\w+(?:\[\])?\.)+\w+)(?:=[^`]*|: [^`]*)?`", read_prose(page))
    for name in {name.replace("[]", "") for name in named} - NOT_VALUES:
        if name.partition(".")[0] in sections:
            # What Kubernetes defines below a value, as in `resources`, is not listed.
            above = {name[: found.start()] for found in re.finditer(r"\.", name)}
            assert name in values or "resources" in above, name
