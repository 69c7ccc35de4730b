"""Why the arbiter decided as it did: typed reasons with their numbers.

``str(reason)`` is a sentence for people; ``remedy`` says what would change the decision.
"""

from themis_ray.core.explain.decisions import (
    Assigned,
    GangTooLarge,
    GotLeftover,
    NoAnswer,
    NoGain,
    NotOffered,
    Outbid,
    Outranked,
    QueueBlocked,
    Satisfied,
    Won,
)
from themis_ray.core.explain.leases import (
    Adopted,
    AppGone,
    CapacityLost,
    GaveBack,
    GroupNotCreated,
    Handover,
    LeaseEnded,
    NotHeld,
    NotPreemptible,
    Recalled,
    Waiting,
)
from themis_ray.core.explain.reason import (
    Reason,
    number,
)
from themis_ray.core.explain.trials import (
    TrialGrows,
    TrialKeepsSize,
    TrialSpread,
    TrialTogether,
)

__all__ = [
    "Adopted",
    "AppGone",
    "Assigned",
    "CapacityLost",
    "GangTooLarge",
    "GaveBack",
    "GotLeftover",
    "GroupNotCreated",
    "Handover",
    "LeaseEnded",
    "NoAnswer",
    "NoGain",
    "NotHeld",
    "NotOffered",
    "NotPreemptible",
    "Outbid",
    "Outranked",
    "QueueBlocked",
    "Reason",
    "Recalled",
    "Satisfied",
    "TrialGrows",
    "TrialKeepsSize",
    "TrialSpread",
    "TrialTogether",
    "Waiting",
    "Won",
    "number",
]
