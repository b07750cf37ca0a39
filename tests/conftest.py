"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A machine that is busy with the other half of the tests is no fault of this one.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
