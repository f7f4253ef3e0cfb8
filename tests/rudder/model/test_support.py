"""The training support: what is inside, what is not, and which columns say so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import ValidationError

from rudder.model import Support, SupportCheck

from .conftest import COLUMNS, training_rows


@pytest.fixture
def check() -> SupportCheck:
    return SupportCheck(Support.of(training_rows()), COLUMNS)


def test_training_rows_are_inside(check: SupportCheck) -> None:
    rows = training_rows()
    assert np.mean([check.inside(row) for row in rows]) > 0.98
    assert check.beyond(rows[0]) == []


def test_columns_out_of_range(check: SupportCheck) -> None:
    # 0.2 to 0.8, and a tenth of the width on both sides.
    assert check.beyond(np.array([0.85, 0.42, 0.3])) == []
    assert check.beyond(np.array([0.95, 0.42, 0.3])) == ["hit_rate"]
    assert check.beyond(np.array([0.05, 0.9, 0.3])) == ["hit_rate", "stale_share"]
    assert not check.inside(np.array([0.95, 0.42, 0.3]))


def test_a_column_that_never_varied(check: SupportCheck) -> None:
    assert check.inside(np.array([0.5, 0.25, 0.3]))
    assert check.inside(np.array([0.5, 0.25, np.nextafter(0.3, 1)]))
    assert check.beyond(np.array([0.5, 0.25, 0.31])) == ["progress"]
    assert not check.inside(np.array([0.5, 0.25, 0.31]))


def test_a_combination_that_never_was(check: SupportCheck) -> None:
    """Each column alone is in its range."""
    row = np.array([0.75, 0.12, 0.3])
    assert check.beyond(row) == []
    assert not check.inside(row)
    assert check.distance(row) > 10 * check.distance(np.array([0.75, 0.375, 0.3]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_number_is_outside(check: SupportCheck, value: float) -> None:
    row = np.array([value, 0.25, 0.3])
    assert check.beyond(row) == ["hit_rate"]
    assert not check.inside(row)


def test_one_row_is_its_own_support() -> None:
    row = training_rows()[0]
    check = SupportCheck(Support.of(row[None, :]), COLUMNS)
    assert check.inside(row)
    assert not check.inside(row + 0.01)


def test_through_json() -> None:
    support = Support.of(training_rows())
    assert Support(**json.loads(json.dumps(support.model_dump(mode="json")))) == support


def test_columns_of_unequal_number() -> None:
    fields = Support.of(training_rows()).model_dump()
    for name in ("high", "centre", "scale", "precision"):
        with pytest.raises(ValidationError, match="unequal number"):
            Support(**{**fields, name: fields[name][:2]})
    with pytest.raises(ValidationError):
        Support(**{**fields, "limit": float("nan")})
