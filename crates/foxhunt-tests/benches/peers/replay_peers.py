#!/usr/bin/env python3
"""The same replay operations in cpprb and torchrl on the CPU; one JSON line a part, as `benches/replay.rs` prints.

    replay_peers.py [cpprb] [torchrl]        needs cpprb 11.0.0; torch 2.11.0, torchrl 0.13.3, tensordict 0.13.0

2^20 rows of state dimension 51, alpha 0.6, beta 0.4, epsilon 1e-6, batches of 256 and 8192, inserts of 1024.
Rows have five fields here, six in Foxhunt (which also stores the discount).
`replay_peers.py --table FILE...` reads such lines, from any number of runs, and prints a table.
"""
import json
import statistics
import sys
import time

import numpy as np

CAPACITY, STATE_DIM, INSERT, ALPHA, BETA, EPS = 1 << 20, 51, 1024, 0.6, 0.4, 1e-6


def td_errors(rng, n):
    return np.exp2(rng.random(n) * 8 - 5).astype(np.float32)


def rows(rng, n):
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    return {"state": normal(n, STATE_DIM), "next_state": normal(n, STATE_DIM),
            "action": (np.arange(n) % 45).astype(np.int32), "reward": normal(n), "done": np.zeros(n, np.float32)}


class Cpprb:
    def __init__(self, capacity, batch):
        import cpprb

        f = np.float32
        self.batch = batch
        self.buffer = cpprb.PrioritizedReplayBuffer(
            capacity, {"state": {"shape": STATE_DIM, "dtype": f}, "next_state": {"shape": STATE_DIM, "dtype": f},
                       "action": {"dtype": np.int32}, "reward": {"dtype": f}, "done": {"dtype": f}},
            alpha=ALPHA, eps=EPS)

    def pack(self, data):
        return data

    def insert(self, data):
        self.buffer.add(**data)

    def sample(self):
        batch = self.buffer.sample(self.batch, beta=BETA)
        return batch["indexes"], batch["action"], batch

    def update(self, indices, tds):
        self.buffer.update_priorities(indices, tds)


class TorchRL:
    def __init__(self, capacity, batch):
        from torchrl.data import LazyTensorStorage, PrioritizedReplayBuffer

        self.batch = batch
        self.buffer = PrioritizedReplayBuffer(alpha=ALPHA, beta=BETA, eps=EPS, batch_size=batch,
                                              storage=LazyTensorStorage(capacity))

    def pack(self, data):
        import torch
        from tensordict import TensorDict

        return TensorDict({k: torch.as_tensor(v) for k, v in data.items()}, [len(data["reward"])])

    def insert(self, data):
        self.buffer.extend(data)

    def sample(self):
        batch, info = self.buffer.sample(self.batch, return_info=True)
        return info["index"], batch["action"], batch

    def update(self, indices, tds):
        import torch

        self.buffer.update_priority(torch.as_tensor(indices), torch.as_tensor(tds))


def check(make):
    """Rows are the ones named; frequencies follow |td|^alpha (chi-square per degree of freedom below 1.15)."""
    rng, n = np.random.default_rng(3), 1000
    peer = make(n, 1000)
    data = rows(rng, n)
    data["action"] = np.arange(n, dtype=np.int32)
    peer.insert(peer.pack(data))
    tds = td_errors(rng, n)
    peer.update(np.arange(n), tds)
    hits = np.zeros(n)
    for _ in range(400):
        indices, actions, _ = peer.sample()
        indices = np.asarray(indices).reshape(-1)
        assert np.array_equal(indices, np.asarray(actions).reshape(-1))
        hits += np.bincount(indices, minlength=n)
    p = (tds.astype(np.float64) + EPS) ** ALPHA
    expected = hits.sum() * p / p.sum()
    per_degree = float(((hits - expected) ** 2 / expected).sum() / (n - 1))
    assert per_degree < 1.15, f"chi-square per degree of freedom {per_degree}"


def timed(name, part, batch, runs, body):
    for _ in range(-(-runs // 10)):
        body()
    took = []
    for _ in range(runs):
        start = time.perf_counter()
        body()
        took.append((time.perf_counter() - start) * 1e6)
    took.sort()
    at = lambda share: round(took[int(share * (runs - 1))], 1)
    print(json.dumps({"impl": name, "part": part, "batch": batch, "us_median": at(0.5), "us_p10": at(0.1),
                      "us_p90": at(0.9)}), flush=True)


def run(name, make):
    check(make)
    rng = np.random.default_rng(9)
    chunk = None
    for batch in (256, 8192):
        peer = make(CAPACITY, batch)
        # Large inserts only to fill it; the timed insert is of INSERT rows.
        big = peer.pack(rows(rng, 1 << 16))
        for _ in range(CAPACITY >> 16):
            peer.insert(big)
        for first in range(0, CAPACITY, 1 << 16):
            peer.update(np.arange(first, first + (1 << 16)), td_errors(rng, 1 << 16))
        runs = 200 if batch > 1000 else 1000
        if chunk is None:
            chunk = peer.pack(rows(rng, INSERT))
            timed(name, "insert", INSERT, runs, lambda: peer.insert(chunk))
            for first in range(0, CAPACITY, 1 << 16):
                peer.update(np.arange(first, first + (1 << 16)), td_errors(rng, 1 << 16))
        timed(name, "sample", batch, runs, peer.sample)
        drawn = [(peer.sample()[0], td_errors(rng, batch)) for _ in range(8)]
        turn = [0]

        def update():
            turn[0] = (turn[0] + 1) % 8
            peer.update(*drawn[turn[0]])

        def cycle():
            turn[0] = (turn[0] + 1) % 8
            peer.update(peer.sample()[0], drawn[turn[0]][1])

        timed(name, "update", batch, runs, update)
        timed(name, "sample+update", batch, runs, cycle)
        del peer


def table(paths):
    """Median (10th percentile) of each run; ratios of the 10th percentiles, which other work on the machine disturbs least."""
    found = {}
    for path in paths:
        for line in open(path):
            if line.startswith("{"):
                row = json.loads(line)
                found.setdefault((row["part"], row["batch"]), {}).setdefault(row["impl"], []).append(row)
    print("| operation | batch | Foxhunt, us | cpprb, us | torchrl, us | cpprb / Foxhunt | torchrl / Foxhunt |")
    print("|---|---|---|---|---|---|---|")
    for (part, batch), by in found.items():
        least = {name: min(row["us_p10"] for row in rows) for name, rows in by.items()}
        show = lambda name: ", ".join(f"{r['us_median']:.1f} ({r['us_p10']:.1f})" for r in by.get(name, [])) or "-"
        ratio = lambda name: f"{least[name] / least['foxhunt']:.1f}" if name in least and "foxhunt" in least else "-"
        print(f"| {part} | {batch} | {show('foxhunt')} | {show('cpprb')} | {show('torchrl')} | {ratio('cpprb')} | "
              f"{ratio('torchrl')} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        table(sys.argv[2:])
    else:
        peers = {"cpprb": Cpprb, "torchrl": TorchRL}
        for name in sys.argv[1:] or list(peers):
            run(name, peers[name])
