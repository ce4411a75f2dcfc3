#!/usr/bin/env python3
"""Writes golden.json: priorities, probabilities and importance weights in float64, straight from the paper.

Independent of the Rust code: no masses, no trees, P(i) = p_i / sum(p), weights (N * P(i))^-beta over their maximum
(arXiv 1511.05952, sections 3.3 and 3.4); rank-based P(i) ~ (1 / rank(i))^alpha with ties to the lower index.

    python3 golden.py > golden.json
"""
import json
import platform

import numpy as np


def case(alpha, epsilon, beta, n, seed, spread):
    rng = np.random.default_rng(seed)
    td = np.float32(rng.standard_normal(n) * 10.0 ** rng.uniform(-spread, spread, n))
    td[n // 2] = td[0]  # a tie
    p = np.abs(td.astype(np.float64)) ** alpha + epsilon
    prob = p / p.sum()
    w = (n * prob) ** -beta
    order = np.lexsort((np.arange(n), -p.astype(np.float32)))
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(1, n + 1)
    rank_prob = (1.0 / rank) ** alpha
    rank_prob /= rank_prob.sum()
    rank_w = (n * rank_prob) ** -beta
    return {
        "alpha": alpha, "epsilon": epsilon, "beta": beta, "td_errors": [float(x) for x in td],
        "priorities": p.tolist(), "probabilities": prob.tolist(), "weights": (w / w.max()).tolist(),
        "ranks": rank.tolist(), "rank_probabilities": rank_prob.tolist(),
        "rank_weights": (rank_w / rank_w.max()).tolist(),
    }


cases = [
    case(0.6, 1e-6, 0.4, 7, 1, 1.0),
    case(0.6, 1e-6, 1.0, 33, 2, 2.0),
    case(1.0, 0.0, 0.5, 64, 3, 1.0),
    case(0.0, 0.01, 0.7, 5, 4, 1.0),
    case(0.3, 0.1, 0.0, 20, 5, 3.0),
    case(0.9, 1e-3, 0.9, 130, 6, 1.5),
]
versions = {"python": platform.python_version(), "numpy": np.__version__}
print(json.dumps({"versions": versions, "cases": cases}, indent=1))
