"""Numbers as they stand in sentences."""

import math

import pytest

from gpuwarm.analysis import words


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0.0353, "35.3 us"), (2.836, "2.84 ms"), (75.0, "75 ms"), (1453.0, "1.45 s"), (37_000.0, "37 s"), (0.0, "0 ms"),
     (-138.2, "-138 ms"), (0.00005, "50 ns"), (2_400_000.0, "2,400 s"), (0.99996, "1 ms"), (999.8, "1 s")],
)  # fmt: skip
def test_a_duration_has_three_digits_and_the_unit_that_suits(value_ms: float, text: str) -> None:
    assert words.duration(value_ms) == text


@pytest.mark.parametrize(
    ("value", "text"), [(6.44, "+6.4 %"), (-15.2, "-15 %"), (0.04, "0 %"), (-0.04, "0 %"), (640.0, "+640 %")]
)
def test_a_change_is_signed_and_nothing_is_zero(value: float, text: str) -> None:
    assert words.percent(value) == text


def test_one_is_singular() -> None:
    assert words.count(1, "iteration") == "1 iteration"
    assert words.count(12_345, "iteration") == "12,345 iterations"
    assert words.count(2, "process", "processes") == "2 processes"


def test_a_median_leaves_out_what_is_missing() -> None:
    assert words.median([math.nan, 1.0, math.inf, 3.0]) == 2.0
    assert words.median([math.nan]) is None


def test_a_span_names_its_unit_once_where_it_is_one() -> None:
    assert words.span(0.2824, 0.307) == "282 to 307 us"
    assert words.span(774.0, 1060.0) == "774 ms to 1.06 s"
