from __future__ import annotations

import pytest

from fakes.source_world import FakeKeyedData, make_sources


@pytest.fixture
def data():
    """Secrets and ConfigMaps; `keys` holds credentials that any stub takes."""
    own = FakeKeyedData()
    own.put_credentials("keys", "AKEXAMPLE", "not-a-secret")
    return own


@pytest.fixture
async def sources(data):
    own = make_sources(data)
    yield own
    await own.close()
