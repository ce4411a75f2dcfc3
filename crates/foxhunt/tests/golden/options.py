"""Golden values of updates with options, by PyTorch in float64: Munchausen targets and noisy layers. Q-values, loss, |TD error|,
gradient, its norm, and weights, moments and target network after three updates.

Written from the papers, not from the Rust code: arXiv 2007.14430 (section 2 and appendix B), arXiv 1706.10295 (equations 9 to
11 and section 3.1), arXiv 1711.08946 for the mean over branches; Philox4x32-10 from Salmon et al. (SC 2011).

Usage: python -P options.py > options.json    (needs torch; -P, because statistics.py here is not the library's)
"""

import json
import platform

import numpy as np
import torch

STATE, HIDDEN, ROWS = 3, [5, 4], 6
BRANCHES = {"exposure": [5], "factored": [45], "branching": [5, 3, 3]}
DELTA, CLIP, LR, BETAS, EPS, TAU = 0.7, 0.5, 1e-2, (0.9, 0.999), 1e-8, 0.05
NOISE_PURPOSE, WORD = 5, 0xFFFFFFFF
ONLINE, BESIDE, TARGET = 0, 1, 2


def philox(seed, stream, step, block):
    """The four words of a block of noise."""
    c = [step & WORD, step >> 32, stream, NOISE_PURPOSE | block << 8]
    k = [seed & WORD, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & WORD, (a >> 32) ^ c[3] ^ k[1], a & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return c


def factors(seed, stream, step, n):
    words = [word for block in range(-(-n // 4)) for word in philox(seed, stream, step, block)][:n]
    x = torch.special.ndtri((torch.tensor(words, dtype=torch.float64) + 0.5) / 2**32)
    return x.sign() * x.abs().sqrt()


def shapes(head, dueling):
    """Weights and biases in the order in which they lie in the flat array."""
    sizes, n_in = [], STATE
    for n in HIDDEN:
        sizes += [(n, n_in), (n,)]
        n_in = n
    n = sum(BRANCHES[head])
    return sizes + ([(1, n_in), (n, n_in), (1,), (n,)] if dueling else [(n, n_in), (n,)])


def layers(tensors, dueling):
    """(weight, bias) of every layer; value before advantage."""
    *hidden, vw, aw, vb, ab = tensors if dueling else [*tensors[:-2], None, tensors[-2], None, tensors[-1]]
    pairs = list(zip(hidden[::2], hidden[1::2]))
    return pairs + ([(vw, vb)] if dueling else []) + [(aw, ab)]


def forward(pairs, x, head, dueling):
    """Q-values, a tensor a branch."""
    *hidden, (w, b) = pairs
    value = hidden.pop() if dueling else None
    for hw, hb in hidden:
        x = torch.relu(x @ hw.T + hb)
    q = (x @ w.T + b).split(BRANCHES[head], 1)
    if not dueling:
        return q
    return [x @ value[0].T + value[1] + a - a.mean(1, keepdim=True) for a in q]


def drawn(means, scales, dueling, seed, which, step):
    """The layers with noise, or the means where there is none."""
    if scales is None:
        return layers(means, dueling)
    out = []
    for k, ((w, b), (sw, sb)) in enumerate(zip(layers(means, dueling), layers(scales, dueling))):
        f, g = [factors(seed, k | side << 8 | which << 16, step, n) for side, n in ((0, w.shape[1]), (1, w.shape[0]))]
        out.append((w + sw * torch.outer(g, f), b + sb * g))
    return out


def case(head, dueling, double, munchausen, noise_seed, seed):
    rng = np.random.default_rng(seed)
    exact = lambda x: torch.tensor(np.float32(x).astype(np.float64))
    draw = lambda *shape: exact(rng.normal(size=shape))
    sizes = shapes(head, dueling)
    noisy = noise_seed is not None
    means, target_means = ([exact(0.6 * rng.normal(size=s)) for s in sizes] for _ in range(2))
    scales, target_scales = ([exact(0.3 * rng.normal(size=s)) for s in sizes] if noisy else None for _ in range(2))
    online, target = means + (scales or []), target_means + (target_scales or [])
    for p in online:
        p.requires_grad_()
    flat = lambda tensors: torch.cat([t.detach().flatten() for t in tensors]).tolist()
    start = {"online": flat(online), "target": flat(target)}
    s, s2, r = draw(ROWS, STATE), draw(ROWS, STATE), draw(ROWS)
    action = torch.tensor(rng.integers(int(np.prod(BRANCHES[head])), size=ROWS))
    terminated = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    discount = exact([0.97, 0.97, 0.97**2, 0.9, 0.97**3, 0.97])
    weight = exact(rng.uniform(0.2, 1.0, ROWS))
    chosen = [action] if head != "branching" else [action // 9, action // 3 % 3, action % 3]
    taken = lambda q: [b.gather(1, a[:, None]).squeeze(1) for b, a in zip(q, chosen)]

    adam = torch.optim.Adam(online, lr=LR, betas=BETAS, eps=EPS)
    out = {}
    for step in range(3):
        run = lambda means, scales, which, x: forward(drawn(means, scales, dueling, noise_seed, which, step), x, head, dueling)
        with torch.no_grad():
            q2 = run(target_means, target_scales, TARGET, s2)
            if munchausen:
                tau = munchausen["tau"]
                log_pi = [torch.log_softmax(q / tau, 1) for q in run(target_means, target_scales, BESIDE, s)]
                bonus = [(tau * l).clamp(munchausen["floor"], 0.0) for l in taken(log_pi)]
                log_pi2 = [torch.log_softmax(q / tau, 1) for q in q2]
                after = [(l.exp() * (q - tau * l)).sum(1) for q, l in zip(q2, log_pi2)]
                r2 = r + munchausen["alpha"] * torch.stack(bonus).mean(0)
            else:
                chooser = run(means, scales, BESIDE, s2) if double else q2
                after = [q.gather(1, c.argmax(1, keepdim=True)).squeeze(1) for q, c in zip(q2, chooser)]
                r2 = r
            y = r2 + discount * (1 - terminated) * torch.stack(after).mean(0)
        values = torch.stack(taken(run(means, scales, ONLINE, s)))
        huber = torch.nn.functional.huber_loss(values, y.expand_as(values), reduction="none", delta=DELTA)
        loss = (weight * huber.mean(0)).mean()
        adam.zero_grad()
        loss.backward()
        gradients = [p.grad for p in online]
        norm = float(torch.cat([g.flatten() for g in gradients]).norm())
        if step == 0:
            q = forward(layers(means, dueling), s, head, dueling)
            out |= {"q": torch.cat(q, 1).flatten().tolist(), "loss": loss.item(), "td": (values - y).abs().mean(0).tolist()}
            out |= {"gradient": flat(gradients), "norm": norm}
        for g in gradients:
            g *= min(1.0, CLIP / norm)
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
    options = {"double": double, "munchausen": munchausen, "noise_seed": noise_seed}
    return {"head": head, "dueling": dueling, **options, "start": start, "batch": batch, "want": out}


def rule(alpha, tau, floor):
    return {"alpha": alpha, "tau": tau, "floor": floor}


cases = [
    case("exposure", False, False, rule(0.9, 0.03, -1.0), None, 1),
    case("exposure", True, False, rule(0.5, 0.4, -0.3), None, 2),
    case("factored", True, False, rule(0.9, 0.2, -5.0), None, 3),
    case("branching", True, False, rule(0.9, 0.1, -0.5), None, 4),
    case("branching", False, False, rule(1.0, 2.0, -1.0), None, 5),
    case("exposure", True, True, None, 7, 6),
    case("exposure", False, False, None, 1 << 40, 7),
    case("factored", True, True, None, 3, 8),
    case("branching", True, True, None, 12345, 9),
    case("branching", False, False, rule(0.9, 0.2, -1.0), 5, 10),
]
versions = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
settings = {"state_dim": STATE, "hidden": HIDDEN, "huber_delta": DELTA, "clip_norm": CLIP, "learning_rate": LR,
            "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPS, "tau": TAU}
document = {"versions": versions, "settings": settings, "cases": cases}
print(json.dumps(json.loads(json.dumps(document), parse_float=lambda x: float(f"{float(x):.12g}"))))
