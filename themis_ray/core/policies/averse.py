"""Aversion to great r: which curve turns an r into the value that the auction multiplies.

THEMIS values a bundle at V = 1 / r. The product of such values is indifferent between lowering
one app's r from 4 to 2 and another's from 1 to 1/2, though only the first has been treated badly.
With an aversion p the value is ::

    log V = -((r / r_max)^p - 1) / p

For p -> 0 this is V = 1 / r; as p grows, the best product comes to be the division with the
smallest greatest r. It is the isoelastic family of welfare economics (Atkinson, 1970; in networks
"alpha-fair"), applied to r. ``r_max`` is the greatest r of the round without its GPUs, so that the
worst-off app, and only it, has the elasticity of V = 1 / r; for the others the auction's stakes,
and with them the hidden payments, are smaller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from themis_ray.core.bids import BidTable

# Keeps values within floating point.
MOST_LOG = 600.0


def averse(tables: Mapping[str, BidTable], aversion: float) -> dict[str, BidTable]:
    """Bid tables whose ``1 / r`` is the value at this aversion.

    Args:
        tables: One table for each app.
        aversion: p, 0 or more.
    """
    if not aversion:
        return dict(tables)
    finite = [t.r_nothing for t in tables.values() if 0 < t.r_nothing < math.inf]
    most = max(finite, default=1.0)
    # Beyond r_max lie only tables that could not be restated for one lease.
    beyond = (MOST_LOG * aversion + 1) ** (1 / aversion)

    def curve(r: float) -> float:
        if r == math.inf:
            return r
        return math.exp((min(r / most, beyond) ** aversion - 1) / aversion)

    return {
        app: replace(
            table,
            r_nothing=curve(table.r_nothing),
            rows=tuple(replace(row, r=curve(row.r)) for row in table.rows),
        )
        for app, table in tables.items()
    }
