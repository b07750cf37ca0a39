"""The agent's sockets without the rest of the agent."""

from __future__ import annotations

import pytest

from fakes.socket_bench import open_socket_bench


@pytest.fixture
def bench(tmp_path):
    with open_socket_bench(tmp_path / "pods") as bench:
        yield bench
