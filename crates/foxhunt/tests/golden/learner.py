"""Golden values of a learner update, by PyTorch in float64: Q-values, targets, loss, |TD error|, gradient, its norm,
and weights, moments and target network after three updates. Written from the papers, not from the Rust code.

Usage: python learner.py > learner.json    (needs torch)
"""

import json
import platform

import numpy as np
import torch

STATE, HIDDEN, ROWS = 3, [5, 4], 6
BRANCHES = {"exposure": [5], "factored": [45], "branching": [5, 3, 3]}
DELTA, CLIP, LR, BETAS, EPS, TAU = 0.7, 0.5, 1e-2, (0.9, 0.999), 1e-8, 0.05


def f32(rng, *shape):
    """Random values that are exact in f32."""
    return torch.tensor(rng.normal(size=shape).astype(np.float32).astype(np.float64))


def shapes(head, dueling):
    sizes, n_in = [], STATE
    for n in HIDDEN:
        sizes += [(n, n_in), (n,)]
        n_in = n
    n = sum(BRANCHES[head])
    return sizes + ([(1, n_in), (n, n_in), (1,), (n,)] if dueling else [(n, n_in), (n,)])


def network(parameters, x, head, dueling):
    p = list(parameters)
    for _ in HIDDEN:
        w, b = p.pop(0), p.pop(0)
        x = torch.relu(x @ w.T + b)
    if not dueling:
        return x @ p[0].T + p[1]
    value, advantage = x @ p[0].T + p[2], x @ p[1].T + p[3]
    parts = [a - a.mean(1, keepdim=True) for a in advantage.split(BRANCHES[head], 1)]
    return value + torch.cat(parts, 1)


def case(head, dueling, double, seed):
    rng = np.random.default_rng(seed)
    online = [(0.6 * f32(rng, *s)).float().double().requires_grad_() for s in shapes(head, dueling)]
    target = [(0.6 * f32(rng, *s)).float().double() for s in shapes(head, dueling)]
    flat = lambda tensors: torch.cat([t.detach().flatten() for t in tensors]).tolist()
    start = {"online": flat(online), "target": flat(target)}
    s, s2, r = f32(rng, ROWS, STATE), f32(rng, ROWS, STATE), f32(rng, ROWS)
    branches = BRANCHES[head]
    joint = int(np.prod(branches))
    action = torch.tensor(rng.integers(joint, size=ROWS))
    terminated = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    discount = torch.tensor(np.float32([0.97, 0.97, 0.97**2, 0.9, 0.97**3, 0.97]).astype(np.float64))
    weight = torch.tensor(np.float32(rng.uniform(0.2, 1.0, ROWS)).astype(np.float64))
    chosen = [action] if len(branches) == 1 else [action // 9, action // 3 % 3, action % 3]

    adam = torch.optim.Adam(online, lr=LR, betas=BETAS, eps=EPS)
    out = {}
    for step in range(3):
        q = network(online, s, head, dueling)
        with torch.no_grad():
            q_target = network(target, s2, head, dueling)
            chooser = network(online, s2, head, dueling) if double else q_target
            pairs = zip(chooser.split(branches, 1), q_target.split(branches, 1))
            best = [t.gather(1, c.argmax(1, keepdim=True)).squeeze(1) for c, t in pairs]
            y = r + discount * (1 - terminated) * torch.stack(best).mean(0)
        taken = torch.stack([b.gather(1, a[:, None]).squeeze(1) for b, a in zip(q.split(branches, 1), chosen)])
        huber = torch.nn.functional.huber_loss(taken, y.expand_as(taken), reduction="none", delta=DELTA)
        loss = (weight * huber.mean(0)).mean()
        td = (taken - y).abs().mean(0)
        adam.zero_grad()
        loss.backward()
        gradient = flat([p.grad for p in online])
        norm = float(torch.cat([p.grad.flatten() for p in online]).norm())
        if step == 0:
            out |= {"q": q.flatten().tolist(), "y": y.tolist(), "loss": loss.item(), "td": td.tolist()}
            out |= {"gradient": gradient, "norm": norm}
        for p in online:
            p.grad *= min(1.0, CLIP / norm)
        adam.step()
        with torch.no_grad():
            for t, p in zip(target, online):
                t += TAU * (p - t)
    moments = {k: flat([adam.state[p][k] for p in online]) for k in ("exp_avg", "exp_avg_sq")}
    out |= {"online": flat(online), "target": flat(target), "m": moments["exp_avg"], "v": moments["exp_avg_sq"]}
    batch = {
        "states": s.flatten().tolist(), "next_states": s2.flatten().tolist(), "actions": action.tolist(),
        "rewards": r.tolist(), "terminated": terminated.tolist(), "discounts": discount.tolist(),
        "weights": weight.tolist(),
    }
    return {"head": head, "dueling": dueling, "double": double, "start": start, "batch": batch, "want": out}


cases = [
    case("exposure", False, True, 1), case("exposure", True, False, 2), case("factored", True, True, 3),
    case("branching", True, True, 4), case("branching", False, False, 5),
]
versions = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
settings = {"state_dim": STATE, "hidden": HIDDEN, "huber_delta": DELTA, "clip_norm": CLIP, "learning_rate": LR,
            "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPS, "tau": TAU}
document = {"versions": versions, "settings": settings, "cases": cases}
print(json.dumps(json.loads(json.dumps(document), parse_float=lambda x: float(f"{float(x):.12g}"))))
