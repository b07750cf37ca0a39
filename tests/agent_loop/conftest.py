"""The whole agent in this process."""

from __future__ import annotations

import pytest

from fakes.agent_bench import open_bench


@pytest.fixture
def bench(tmp_path):
    with open_bench(tmp_path) as bench:
        yield bench
