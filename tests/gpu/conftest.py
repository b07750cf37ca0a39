"""Tests that need a card of NVIDIA: `make test-gpu`, and nothing else, collects them.

Without a card, or without a torch that can use it, they fail; they never pass over it.
"""

from __future__ import annotations

import pytest

from modelcache_agent.ports.device import DeviceUnavailableError
from modelcache_agent.tiers.gpu.cuda_vmm import CudaDevice


def pytest_ignore_collect(config):
    return None if config.option.markexpr == "gpu" else True


@pytest.fixture
def device():
    try:
        device = CudaDevice()
    except DeviceUnavailableError as error:
        pytest.fail(f"these tests were asked for, and need a card: {error}")
    yield device
    device.close()
