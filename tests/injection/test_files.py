"""What the chart takes is what the definition says."""

from __future__ import annotations

from pathlib import Path

import yaml

from modelcache_operator.injection_files import (
    AGENT_IMAGE,
    AUTHORITY,
    SYSTEM_NAMESPACE,
    main,
    render_files,
)

CHART = Path(__file__).parents[2] / "charts" / "modelcache"


def test_the_committed_files_are_up_to_date():
    assert main(["--check", str(CHART)]) == 0


def test_stale_files_are_named(tmp_path, capsys):
    main(["--write", str(tmp_path)])
    (tmp_path / "files" / "injection-policy.yaml").write_text("old")
    assert main(["--check", str(tmp_path)]) == 1
    assert "injection-policy.yaml is not up to date" in capsys.readouterr().err


def test_the_words_that_the_chart_replaces_are_there():
    files = render_files()
    policy = files["files/injection-policy.yaml"]
    hook = files["webhook/injection-webhook.yaml"]
    assert f'dyn("{AGENT_IMAGE}")' in policy
    assert f"caBundle: {AUTHORITY}" in hook
    for text in (policy, hook):
        assert SYSTEM_NAMESPACE in text
        assert all(yaml.safe_load_all(text))
