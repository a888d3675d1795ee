from __future__ import annotations

import numpy as np
import pytest

from mirage_py.ugraph.field import FIELDS, Field
from mirage_py.ugraph.field.exponential import power_table


@pytest.mark.parametrize("field", FIELDS)
def test_table_is_the_power(field: Field) -> None:
    table = power_table(field.generator, field.p)
    edges = [0, 1, 2, 2**15 - 1, 2**15, 2**15 + 1, 2**30 - 1, field.q - 1, field.q]
    exponents = np.array(edges + np.random.default_rng(0).integers(0, field.q, 500).tolist())
    expected = [pow(field.generator, x, field.p) for x in exponents.tolist()]
    assert table(exponents).tolist() == expected
    assert table(np.array(5)).shape == ()
    assert (
        table(exponents[:6].reshape(2, 3).T).tolist() == np.reshape(expected[:6], (2, 3)).T.tolist()
    )


def test_tables_are_kept() -> None:
    field = FIELDS[0]
    assert power_table(field.generator, field.p) is power_table(field.generator, field.p)
