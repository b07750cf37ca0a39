"""What the commands say of a kubeconfig that they cannot use."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from modelcache_cli.__main__ import app

REST = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
"""


@pytest.mark.parametrize("words", [(), ("-n", "search")], ids=["", "with a namespace"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "it is not as kubectl writes it", id="empty"),
        pytest.param("[]", "it is not as kubectl writes it", id="a list"),
        pytest.param("hello", "it is not as kubectl writes it", id="a word"),
        pytest.param("{", "while parsing a flow node", id="no YAML"),
        pytest.param(f"{REST}clusters: []", "Expected object with name c", id="no cluster"),
        pytest.param(
            f"{REST}clusters: [{{name: c, cluster: {{server: 'https://a.example', "
            "certificate-authority-data: '!!'}}]",
            "no certificate",
            id="garbage for a CA",
        ),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_one_line(tmp_path, text, said, words):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    done = CliRunner().invoke(app, ["status", "--kubeconfig", str(path), *words])
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: no usable kubeconfig at {path}: ")
    assert said in line


def test_a_folder_is_no_kubeconfig(tmp_path):
    done = CliRunner().invoke(app, ["status", "--kubeconfig", str(tmp_path)])
    assert (done.exit_code, "Is a directory" in done.stderr) == (1, True)
