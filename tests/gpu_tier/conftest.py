"""The stand-in driver, compiled once."""

from __future__ import annotations

import pytest

from fakes.cuda_stand_in import break_libraries, compile_stand_in


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    return compile_stand_in(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def no_driver(tmp_path):
    folder = tmp_path / "no-driver"
    folder.mkdir()
    return break_libraries(folder)
