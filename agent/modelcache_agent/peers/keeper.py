"""Keeps our certificate towards other agents fresh."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from modelcache_agent.fetch import GrantUnavailableError
from modelcache_api.names import PATH_CERTIFICATES
from modelcache_api.wire import CertificateRequest, CertificateResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelcache_agent.adapters.operator_http import OperatorHttp
    from modelcache_agent.peers.credentials import PeerCredentials
    from modelcache_agent.ports.clock import Clock

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
# Renewed at two thirds of its life; all nodes started together shall not ask together.
_RENEW_AT: Final = 2 / 3
_JITTER: Final = 0.1


class CertificateKeeper:
    """Asks at once, and again before the certificate runs out. Never ends."""

    def __init__(
        self,
        http: OperatorHttp,
        credentials: PeerCredentials,
        clock: Clock,
        on_renewed: Callable[[], None],
    ) -> None:
        self._on_renewed = on_renewed
        self._http = http
        self._credentials = credentials
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            life = await self._renew()
            if life is not None:
                pause = _FIRST_PAUSE_SECONDS
                await asyncio.sleep(life * (_RENEW_AT - _JITTER * self._clock.jitter()))
            else:
                await asyncio.sleep(pause * (1 + self._clock.jitter()))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _renew(self) -> float | None:
        """The new certificate's life in seconds, or None if there is none."""
        request = CertificateRequest(public_key=self._credentials.public_key)
        try:
            _status, document = await self._http.post(
                PATH_CERTIFICATES, request.model_dump_json(by_alias=True).encode()
            )
            answer = CertificateResponse.model_validate(document)
            await asyncio.to_thread(self._credentials.use, answer)
        except GrantUnavailableError as error:
            _log.warning("no certificate for other agents: %s", error.message)
        except (ValidationError, ValueError, OSError) as error:
            _log.warning("a certificate that cannot be used: %s", type(error).__name__)
        else:
            self._on_renewed()
            return answer.valid_seconds
        return None
