import math
import random
from fractions import Fraction

import pytest

from themis_ray.core.policies.gittins import GittinsTable, gittins_index

ORACLE = ["1/8", "1/7", "1/6", "1/3", "1/6", "1/5", "1/4", "1/2", "1/4", "1/3", "1/2", "1"]


def test_services_of_4_8_and_12_equally_likely():
    services = [Fraction(s) for s in (4, 8, 12)]
    found = [gittins_index(Fraction(a), services) for a in range(12)]
    assert found == [Fraction(text) for text in ORACLE]


def test_the_table_gives_the_same_in_floats():
    table = GittinsTable((4.0, 8.0, 12.0))
    assert [table.index(float(a)) for a in range(12)] == pytest.approx(
        [float(Fraction(text)) for text in ORACLE]
    )


def test_a_job_beyond_every_known_service_comes_last():
    assert gittins_index(Fraction(12), [Fraction(4), Fraction(12)]) == 0
    assert GittinsTable((4.0, 12.0)).index(12.0) == 0


def test_one_known_service_gives_the_inverse_of_what_is_left():
    assert gittins_index(Fraction(3), [Fraction(10)]) == Fraction(1, 7)


@pytest.mark.parametrize("seed", range(20))
def test_against_the_definition_over_all_quanta(seed):
    """sup over D of P(S - a <= D | S > a) / E[min(S - a, D) | S > a], D on a fine grid."""
    rng = random.Random(seed)
    services = [Fraction(rng.randint(1, 12)) for _ in range(rng.randint(1, 8))]
    a = Fraction(rng.randint(0, 11))
    rest = [s - a for s in services if s > a]
    quanta = [Fraction(i, 4) for i in range(1, 49)]
    by_hand = max(
        (Fraction(sum(x <= d for x in rest)) / sum(min(x, d) for x in rest) for d in quanta)
        if rest
        else [Fraction(0)]
    )
    assert gittins_index(a, services) == by_hand
    table = GittinsTable([float(s) for s in services])
    assert math.isclose(table.index(float(a)), float(by_hand), rel_tol=1e-12)
