"""Golden values of the statistics of a Sharpe ratio and of scores over seeds, by NumPy and SciPy. Written from the papers
named in the Rust code, not from that code.

Usage: python statistics.py > statistics.json    (needs numpy, scipy)
"""

import json
import platform

import numpy as np
import scipy
from scipy import stats

rng = np.random.default_rng(20261130)
CONFIDENCE = 0.95


def sharpe_case(name, returns, rate, trials, variance):
    n = len(returns)
    sr = (returns.mean() - rate) / returns.std(ddof=1)
    skew, kurt = stats.skew(returns), stats.kurtosis(returns, fisher=False)
    se = np.sqrt((1 - skew * sr + (kurt - 1) / 4 * sr**2) / (n - 1))
    z = stats.norm.ppf(1 - (1 - CONFIDENCE) / 2)
    v = variance if variance is not None else 1 / (n - 1)
    best = np.sqrt(v) * (
        (1 - np.euler_gamma) * stats.norm.isf(1 / trials) + np.euler_gamma * stats.norm.isf(1 / (trials * np.e))
    )
    track = 1 + (se**2 * (n - 1)) * (stats.norm.ppf(CONFIDENCE) / sr) ** 2
    return {
        "name": name, "returns": list(returns), "rate": rate, "trials": trials, "variance": variance,
        "ratio": sr, "skewness": skew, "kurtosis": kurt, "standard_error": se,
        "low": sr - z * se, "high": sr + z * se,
        "psr_zero": stats.norm.cdf(sr / se), "psr_tenth": stats.norm.cdf((sr - 0.1) / se),
        "expected_best": best, "dsr": stats.norm.cdf((sr - best) / se),
        "min_track_record": track if sr > 0 else None,
    }


def iqm_case(folds, seeds):
    scores = rng.normal(0.3, 1.0, size=(folds, seeds)) + np.arange(folds)[:, None] * 0.2
    draws = []
    for _ in range(20000):
        pick = np.stack([rng.choice(row, size=seeds) for row in scores])
        draws.append(stats.trim_mean(pick, 0.25, axis=None))
    low, high = np.percentile(draws, [2.5, 97.5])
    return {
        "scores": scores.tolist(), "iqm": stats.trim_mean(scores, 0.25, axis=None), "low": low, "high": high,
        "p10": np.percentile(scores, 10), "p75": np.percentile(scores, 75),
    }


cases = [
    sharpe_case("normal", rng.normal(0.0004, 0.01, 250), 0.0, 2, None),
    sharpe_case("skewed", rng.exponential(0.01, 120) - 0.009, 0.0, 100, 0.02),
    sharpe_case("fat tails", rng.standard_t(3, 400) * 1e-5 + 1e-6, 2e-7, 1000, None),
    sharpe_case("losing", rng.normal(-0.002, 0.01, 60), 0.0001, 7, 0.001),
    sharpe_case("three", np.array([0.01, -0.02, 0.03]), 0.0, 3, None),
]
print(json.dumps({
    "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
    "confidence": CONFIDENCE,
    "sharpe": cases,
    "iqm": [iqm_case(1, 5), iqm_case(4, 5), iqm_case(3, 10)],
}))
