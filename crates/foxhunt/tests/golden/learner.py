"""Golden values of a learner update, by PyTorch in float64: Q-values, targets, loss, |TD error|, gradient, its norm,
and weights, moments and target network after three updates; for DQN, C51 and QR-DQN. Written from the papers, not from
the Rust code.

Usage: python -P learner.py > learner.json    (needs torch; -P keeps statistics.py beside it from being imported)
"""

import json
import platform

import numpy as np
import torch

STATE, HIDDEN, ROWS = 3, [5, 4], 6
BRANCHES = {"exposure": [5], "factored": [45], "branching": [5, 3, 3]}
ATOMS, RANGE = 5, (-1.5, 2.0)
DELTA, CLIP, LR, BETAS, EPS, TAU = 0.7, 0.5, 1e-2, (0.9, 0.999), 1e-8, 0.05


def f32(rng, *shape):
    """Random values that are exact in f32."""
    return torch.tensor(rng.normal(size=shape).astype(np.float32).astype(np.float64))


def shapes(head, dueling, atoms):
    sizes, n_in = [], STATE
    for n in HIDDEN:
        sizes += [(n, n_in), (n,)]
        n_in = n
    n = sum(BRANCHES[head]) * atoms
    return sizes + ([(atoms, n_in), (n, n_in), (atoms,), (n,)] if dueling else [(n, n_in), (n,)])


def network(parameters, x, head, dueling, atoms):
    """What the head says of each action: [rows, actions, atoms]."""
    p = list(parameters)
    for _ in HIDDEN:
        w, b = p.pop(0), p.pop(0)
        x = torch.relu(x @ w.T + b)
    if not dueling:
        return (x @ p[0].T + p[1]).unflatten(1, (-1, atoms))
    value, advantage = x @ p[0].T + p[2], (x @ p[1].T + p[3]).unflatten(1, (-1, atoms))
    parts = [a - a.mean(1, keepdim=True) for a in advantage.split(BRANCHES[head], 1)]
    return value[:, None] + torch.cat(parts, 1)


SUPPORT = torch.linspace(*RANGE, ATOMS, dtype=torch.float64)


def expectation(values, kind):
    return (values.softmax(2) * SUPPORT).sum(2) if kind == "c51" else values.mean(2)


def project(returns, p):
    """Equation 7 of the C51 paper, as it is written."""
    step = (RANGE[1] - RANGE[0]) / (ATOMS - 1)
    distance = (returns.clamp(*RANGE)[:, None, :] - SUPPORT[None, :, None]).abs() / step
    return ((1 - distance).clamp(0, 1) * p[:, None, :]).sum(2)


def branch_loss(kind, taken, target):
    """Loss and TD error of the action taken, [rows] each. `target` is y, m or the targets of the quantiles."""
    if kind == "dqn":
        y, q = target[:, 0], taken[:, 0]
        return torch.nn.functional.huber_loss(q, y, reduction="none", delta=DELTA), (q - y).abs()
    if kind == "c51":
        log_p = taken.log_softmax(1)
        return -(target * log_p).sum(1), torch.nn.functional.kl_div(log_p, target, reduction="none").sum(1)
    n = taken.shape[1]
    tau = ((torch.arange(n) + 0.5) / n).double()
    u = target[:, None, :] - taken[:, :, None]  # [rows, quantile i, target j]
    huber = torch.where(u.abs() <= DELTA, 0.5 * u**2, DELTA * (u.abs() - 0.5 * DELTA))
    rho = (tau[None, :, None] - (u.detach() < 0).double()).abs() * huber
    return rho.mean(2).sum(1), (target - taken).abs().mean(1)


def case(head, dueling, double, seed, kind="dqn"):
    atoms = 1 if kind == "dqn" else ATOMS
    rng = np.random.default_rng(seed)
    online = [(0.6 * f32(rng, *s)).float().double().requires_grad_() for s in shapes(head, dueling, atoms)]
    target = [(0.6 * f32(rng, *s)).float().double() for s in shapes(head, dueling, atoms)]
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
        values = network(online, s, head, dueling, atoms)
        rows = torch.arange(ROWS)
        with torch.no_grad():
            q = expectation(values, kind)
            next_target = network(target, s2, head, dueling, atoms)
            chooser = network(online, s2, head, dueling, atoms) if double else next_target
            pairs = zip(expectation(chooser, kind).split(branches, 1), next_target.split(branches, 1))
            best = [t[rows, c.argmax(1)] for c, t in pairs]
            alive = (discount * (1 - terminated))[:, None]
            if kind == "c51":
                p = torch.stack([b.softmax(1) for b in best]).mean(0)
                y = project(r[:, None] + alive * SUPPORT, p)
            else:
                y = r[:, None] + alive * torch.stack(best).mean(0)
        taken = [b[rows, a] for b, a in zip(values.split(branches, 1), chosen)]
        losses, tds = zip(*[branch_loss(kind, t, y) for t in taken])
        loss = (weight * torch.stack(losses).mean(0)).mean()
        td = torch.stack(tds).mean(0)
        adam.zero_grad()
        loss.backward()
        gradient = flat([p.grad for p in online])
        norm = float(torch.cat([p.grad.flatten() for p in online]).norm())
        if step == 0:
            out |= {"q": q.flatten().tolist(), "y": y.squeeze(1).tolist(), "loss": loss.item(), "td": td.detach().tolist()}
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
    return {"head": head, "dueling": dueling, "double": double, "kind": kind, "start": start, "batch": batch, "want": out}


cases = [
    case("exposure", False, True, 1), case("exposure", True, False, 2), case("factored", True, True, 3),
    case("branching", True, True, 4), case("branching", False, False, 5),
    case("exposure", False, True, 6, "c51"), case("exposure", True, False, 7, "c51"),
    case("branching", True, True, 8, "c51"),
    case("exposure", False, True, 10, "qr"), case("exposure", True, False, 11, "qr"),
    case("branching", True, True, 12, "qr"),
]
versions = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
settings = {"state_dim": STATE, "hidden": HIDDEN, "atoms": ATOMS, "range": RANGE, "huber_delta": DELTA, "clip_norm": CLIP, "learning_rate": LR,
            "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPS, "tau": TAU}
document = {"versions": versions, "settings": settings, "cases": cases}
print(json.dumps(json.loads(json.dumps(document), parse_float=lambda x: float(f"{float(x):.12g}"))))
