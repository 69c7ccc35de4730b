"""Who may call the arbiter, and for whom a session speaks.

The cluster's token opens the door. It is made by the arbiter and can be read only through the Ray
cluster, and every call must carry it, those of the standard health service too: without it a
stranger learns only that something listens. A probe passes it as metadata, for example
``grpc_health_probe -rpc-header "x-themis-token: ..."``. The token travels in the clear: like Ray's
own ports, the arbiter's belongs in a trusted network.

A session secret is an app's own. The arbiter makes it with the first session and the client shows
it when it connects again; only then may a new session take the place of a live one.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from themis_ray.errors import AuthenticationError, ConfigError
from themis_ray.rpc.failures import abort

logger = logging.getLogger(__name__)

TOKEN_KEY = "x-themis-token"
"""The metadata key of the cluster's token."""


def new_secret() -> str:
    """A fresh token or session secret: 256 random bits as text."""
    return secrets.token_urlsafe(32)


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(one.encode(), other.encode())


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is untyped
    """Refuses every call that does not carry the cluster's token.

    Args:
        token: The token.

    Raises:
        ConfigError: The token is empty.
    """

    def __init__(self, token: str) -> None:
        if not token:
            raise ConfigError("the cluster's token is empty; make one with auth.new_secret()")
        self._token = token

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Let the call through, or answer it with UNAUTHENTICATED."""
        shown = dict(handler_call_details.invocation_metadata or ()).get(TOKEN_KEY)
        if isinstance(shown, str) and same(shown, self._token):
            return await continuation(handler_call_details)
        what = "no token" if shown is None else "a wrong token"

        async def deny(_requests: object, context: Any) -> None:
            logger.warning(
                "refused %s from %s: %s", handler_call_details.method, context.peer(), what
            )
            await abort(
                context,
                AuthenticationError(
                    f"the call to the arbiter carried {what}; read the token of the running "
                    "arbiter through the Ray cluster (connect to that cluster first)"
                ),
            )

        # Streams on both sides fit any call: it is refused before a message is read.
        return grpc.stream_stream_rpc_method_handler(deny)
