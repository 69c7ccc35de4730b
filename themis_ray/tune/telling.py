"""What people are told while a search runs: each thing once, and what it waits for."""

from __future__ import annotations

import logging
import time

from themis_ray.agent.session import Session
from themis_ray.agent.trials import TrialPhase
from themis_ray.errors import ThemisError

logger = logging.getLogger(__name__)

# How long an app waits without any trial running before it is told why, and how often again.
TELL_AFTER_S = 15.0
TELL_EVERY_S = 60.0


class Teller:
    """Speaks for one app.

    Args:
        app: The app's name.
    """

    def __init__(self, app: str) -> None:
        self.app = app
        self._told: set[str] = set()
        self._waiting_since_s: float | None = None

    def once(self, what: str, message: str) -> None:
        """Warn, unless it has been said before; ``what`` tells warnings apart."""
        if what not in self._told:
            self._told.add(what)
            logger.warning(message)

    def why_waiting(self, session: Session) -> None:
        """Tell people what they wait for; Tune's own warning would speak of missing resources."""
        with session.using() as agent:
            phases = {t.phase for t in agent.trials.values()}
        now = time.monotonic()
        # One that has been placed is starting: it waits for its process, not for a lease.
        at_work = {TrialPhase.PLACED, TrialPhase.RUNNING, TrialPhase.LEAVING}
        if TrialPhase.WAITING not in phases or phases & at_work:
            self._waiting_since_s = None
        elif self._waiting_since_s is None:
            self._waiting_since_s = now
        elif now - self._waiting_since_s > TELL_AFTER_S:
            self._waiting_since_s = now + TELL_EVERY_S - TELL_AFTER_S
            try:
                why = session.why_waiting()
            except ThemisError as error:
                why = str(error)
            logger.warning("%s waits for a lease: %s", self.app, why)
