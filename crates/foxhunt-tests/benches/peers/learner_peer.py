"""The same learner update in PyTorch on the CPU: 51 -> 256 -> 256 -> 1 + 45, batch 256, double DQN, Huber x IS
weights, global-norm clip, Adam, Polyak. Prints one JSON line a variant: eager and torch.compile, alone and with a
prioritised replay memory of 2^20 rows (cpprb). Usage: learner_peer.py [--no-compile] [--no-replay]; OMP_NUM_THREADS sets the threads."""

import json
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn

BATCH, STATE, ACTIONS, TAU = 256, 51, 45, 0.005


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l0, self.l1, self.head = nn.Linear(STATE, 256), nn.Linear(256, 256), nn.Linear(256, 1 + ACTIONS)

    def forward(self, x):
        out = self.head(torch.relu(self.l1(torch.relu(self.l0(x)))))
        value, advantage = out[:, :1], out[:, 1:]
        return value + advantage - advantage.mean(1, keepdim=True)


def make(compiled):
    torch.manual_seed(0)
    online, target = Net(), Net()
    target.load_state_dict(online.state_dict())
    parameters, targets = list(online.parameters()), list(target.parameters())
    adam = torch.optim.Adam(parameters, lr=5e-4, fused=True)

    def loss_of(s, s2, a, r, term, disc, w):
        with torch.no_grad():
            best = online(s2).argmax(1, keepdim=True)
            y = r + disc * (1 - term) * target(s2).gather(1, best).squeeze(1)
        delta = online(s).gather(1, a).squeeze(1) - y
        loss = (w * nn.functional.huber_loss(delta, torch.zeros_like(delta), reduction="none")).mean()
        return loss, delta.detach().abs()

    if compiled:
        loss_of = torch.compile(loss_of)

    def update(*batch):
        loss, td = loss_of(*batch)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 10.0, foreach=True)
        adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(targets, parameters, TAU)
        return loss, norm, td

    return update


def tensors(rows):
    g = torch.Generator().manual_seed(1)
    n = lambda *shape: torch.randn(*shape, generator=g)
    a = torch.randint(ACTIONS, (rows, 1), generator=g)
    return n(rows, STATE), n(rows, STATE), a, n(rows), torch.zeros(rows), torch.full((rows,), 0.97), torch.rand(rows, generator=g)


def timed(name, body, runs=400):
    for _ in range(runs // 10):
        body()
    took = []
    for _ in range(runs):
        start = time.perf_counter()
        body()
        took.append((time.perf_counter() - start) * 1e6)
    print(json.dumps({"part": name, "us_median": round(statistics.median(took), 1), "us_min": round(min(took), 1)}), flush=True)


def replay_step(update):
    from cpprb import PrioritizedReplayBuffer

    capacity = 1 << 20
    buffer = PrioritizedReplayBuffer(
        capacity,
        {"s": {"shape": STATE}, "s2": {"shape": STATE}, "a": {"dtype": np.int64}, "r": {}, "t": {}, "d": {}},
        alpha=0.6,
        eps=1e-6,
    )
    s, s2, a, r, t, d, _ = tensors(4096)
    for _ in range(capacity // 4096):
        buffer.add(s=s.numpy(), s2=s2.numpy(), a=a.numpy(), r=r.numpy(), t=t.numpy(), d=d.numpy())

    def step():
        rows = buffer.sample(BATCH, beta=0.5)
        f = lambda key: torch.from_numpy(rows[key])
        one = lambda key: f(key).squeeze(1)
        _, _, td = update(f("s"), f("s2"), f("a"), one("r"), one("t"), one("d"), f("weights"))
        buffer.update_priorities(rows["indexes"], td.numpy())

    return step


def main():
    torch.set_flush_denormal(True)
    print(json.dumps({"part": "versions", "torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    batch = tensors(BATCH)
    variants = [("eager", False)] + ([] if "--no-compile" in sys.argv else [("compile", True)])
    for name, compiled in variants:
        update = make(compiled)
        timed(f"torch_{name}_update", lambda: update(*batch))
        if "--no-replay" not in sys.argv:
            timed(f"torch_{name}_update_with_replay", replay_step(update))


main()
