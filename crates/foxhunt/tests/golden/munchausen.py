"""Golden values of Munchausen updates, by PyTorch in float64: Q-values, targets, loss, |TD error|, gradient, its norm, and
weights, moments and target network after three updates. Written from arXiv 2007.14430 (equation 2 and appendix B), not from
the Rust code; branches take the mean of their targets, as in arXiv 1711.08946.

Usage: python -P munchausen.py > munchausen.json    (needs torch; -P, because statistics.py here is not the library's)
"""

import json
import platform

import numpy as np
import torch

STATE, HIDDEN, ROWS = 3, [5, 4], 6
BRANCHES = {"exposure": [5], "factored": [45], "branching": [5, 3, 3]}
DELTA, CLIP, LR, BETAS, EPS, TAU = 0.7, 0.5, 1e-2, (0.9, 0.999), 1e-8, 0.05


class Net(torch.nn.Module):
    """Linear layers in the order in which the flat parameters lie: every weight and bias, then value, then advantage."""

    def __init__(self, head, dueling, rng):
        super().__init__()
        sizes = [STATE, *HIDDEN]
        self.trunk = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.branches, self.dueling = BRANCHES[head], dueling
        self.value = torch.nn.Linear(HIDDEN[-1], 1) if dueling else None
        self.last = torch.nn.Linear(HIDDEN[-1], sum(self.branches))
        self.double()
        with torch.no_grad():
            for p in self.flat():
                p.copy_(torch.tensor(np.float32(0.6 * rng.normal(size=p.shape)).astype(np.float64)))

    def flat(self):
        hidden = [p for layer in self.trunk for p in (layer.weight, layer.bias)]
        heads = [self.value, self.last] if self.dueling else [self.last]
        return hidden + [h.weight for h in heads] + [h.bias for h in heads]

    def forward(self, x):
        for layer in self.trunk:
            x = layer(x).relu()
        q = self.last(x).split(self.branches, 1)
        if not self.dueling:
            return q
        return [self.value(x) + a - a.mean(1, keepdim=True) for a in q]


def numbers(tensors):
    return torch.cat([t.detach().flatten() for t in tensors]).tolist()


def case(head, dueling, alpha, tau, floor, seed):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.tensor(rng.normal(size=shape).astype(np.float32).astype(np.float64))
    online, target = Net(head, dueling, rng), Net(head, dueling, rng)
    start = {"online": numbers(online.flat()), "target": numbers(target.flat())}
    s, s2, r = draw(ROWS, STATE), draw(ROWS, STATE), draw(ROWS)
    action = torch.tensor(rng.integers(int(np.prod(BRANCHES[head])), size=ROWS))
    terminated = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    discount = torch.tensor(np.float32([0.97, 0.97, 0.97**2, 0.9, 0.97**3, 0.97]).astype(np.float64))
    weight = torch.tensor(np.float32(rng.uniform(0.2, 1.0, ROWS)).astype(np.float64))
    chosen = [action] if head != "branching" else [action // 9, action // 3 % 3, action % 3]

    adam = torch.optim.Adam(online.flat(), lr=LR, betas=BETAS, eps=EPS)
    out = {}
    for step in range(3):
        with torch.no_grad():
            bonus, soft = [], []
            for q, q2, a in zip(target(s), target(s2), chosen):
                log_pi = torch.log_softmax(q / tau, 1).gather(1, a[:, None]).squeeze(1)
                bonus.append((tau * log_pi).clamp(floor, 0.0))
                log_pi2 = torch.log_softmax(q2 / tau, 1)
                soft.append((log_pi2.exp() * (q2 - tau * log_pi2)).sum(1))
            y = r + alpha * torch.stack(bonus).mean(0) + discount * (1 - terminated) * torch.stack(soft).mean(0)
        q = online(s)
        taken = torch.stack([b.gather(1, a[:, None]).squeeze(1) for b, a in zip(q, chosen)])
        huber = torch.nn.functional.huber_loss(taken, y.expand_as(taken), reduction="none", delta=DELTA)
        loss = (weight * huber.mean(0)).mean()
        adam.zero_grad()
        loss.backward()
        gradients = [p.grad for p in online.flat()]
        norm = float(torch.cat([g.flatten() for g in gradients]).norm())
        if step == 0:
            out |= {"q": torch.cat(q, 1).flatten().tolist(), "y": y.tolist(), "loss": loss.item()}
            out |= {"td": (taken - y).abs().mean(0).tolist(), "gradient": numbers(gradients), "norm": norm}
        for g in gradients:
            g *= min(1.0, CLIP / norm)
        adam.step()
        with torch.no_grad():
            for t, p in zip(target.flat(), online.flat()):
                t += TAU * (p - t)
    moments = {k: numbers([adam.state[p][k] for p in online.flat()]) for k in ("exp_avg", "exp_avg_sq")}
    out |= {"online": numbers(online.flat()), "target": numbers(target.flat())}
    out |= {"m": moments["exp_avg"], "v": moments["exp_avg_sq"]}
    batch = {
        "states": s.flatten().tolist(), "next_states": s2.flatten().tolist(), "actions": action.tolist(),
        "rewards": r.tolist(), "terminated": terminated.tolist(), "discounts": discount.tolist(),
        "weights": weight.tolist(),
    }
    rule = {"alpha": alpha, "tau": tau, "floor": floor}
    return {"head": head, "dueling": dueling, "double": False, "munchausen": rule, "start": start, "batch": batch, "want": out}


cases = [
    case("exposure", False, 0.9, 0.03, -1.0, 1), case("exposure", True, 0.5, 0.4, -0.3, 2),
    case("factored", True, 0.9, 0.2, -5.0, 3), case("branching", True, 0.9, 0.1, -0.5, 4),
    case("branching", False, 1.0, 2.0, -1.0, 5),
]
versions = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
settings = {"state_dim": STATE, "hidden": HIDDEN, "huber_delta": DELTA, "clip_norm": CLIP, "learning_rate": LR,
            "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPS, "tau": TAU}
document = {"versions": versions, "settings": settings, "cases": cases}
print(json.dumps(json.loads(json.dumps(document), parse_float=lambda x: float(f"{float(x):.12g}"))))
