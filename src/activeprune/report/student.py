"""Student's t distribution, from the regularised incomplete beta function."""

from __future__ import annotations

from math import exp, inf, isinf, lgamma, log, log1p, sqrt

TINY = 1e-300  # in place of a denominator of 0
MOST_TERMS = 10_000


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) = ∫₀ˣ t^(a-1) (1-t)^(b-1) dt / B(a, b), for a, b > 0 and x in [0, 1].

    >>> round(incomplete_beta(2, 3, 0.4), 6)  # 6x² - 8x³ + 3x⁴
    0.5248
    """
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly; 1 - x is exact there
        return 1 - incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    return front / a / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d₁/(1 + d₂/(1 + …)) by Lentz's method, d the coefficients of DLMF 8.17.22."""
    value = numerator = 1.0
    denominator = 0.0
    for j in range(1, MOST_TERMS):
        m = j // 2
        d = (-(a + m) * (a + b + m) if j % 2 else m * (b - m)) * x / ((a + j - 1) * (a + j))
        denominator = 1 / ((1 + d * denominator) or TINY)
        numerator = (1 + d / numerator) or TINY
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return value


def two_sided(t: float, freedom: float) -> float:
    """P(|T| ≥ |t|) for so many degrees of freedom.

    >>> round(two_sided(2.776445, 4), 6)
    0.05
    """
    if isinf(t):
        return 0.0
    if (square := t * t) < freedom:  # where freedom / (freedom + t²) would lose a small t
        return 1 - incomplete_beta(0.5, freedom / 2, square / (freedom + square))
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square))


def quantile(probability: float, freedom: float) -> float:
    """The t below which T lies with this probability.

    >>> round(quantile(0.975, 4), 4)
    2.7764
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability {probability}: more than 0 and less than 1 is needed")
    if probability < 0.5:
        return -quantile(1 - probability, freedom)
    tail = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > tail and high < inf:
        low, high = high, 2 * high
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if two_sided(middle, freedom) > tail else (low, middle)
    return high


def half_width(std: float, count: int, confidence: float = 0.95) -> float:
    """Of the confidence interval of the mean of `count` values with this sample standard deviation."""
    return quantile((1 + confidence) / 2, count - 1) * std / sqrt(count)
