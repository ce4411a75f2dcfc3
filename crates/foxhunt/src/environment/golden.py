"""Golden walks of the classic control problems, by Gymnasium.

    python golden.py > golden.json      (gymnasium 1.x, numpy)
"""

import json
import sys

import gymnasium
import numpy as np

CASES = {
    "CartPole-v1": [[0.01, -0.02, 0.03, 0.04], [1.9, 1.5, 0.1, -0.4]],
    "MountainCar-v0": [[-0.5, 0.0], [0.4, 0.06], [-1.19, -0.05]],
    "Acrobot-v1": [[0.05, -0.03, 0.02, 0.08], [2.9, 0.4, 3.0, -9.0]],
}

walks = []
for name, starts in CASES.items():
    for number, start in enumerate(starts):
        env = gymnasium.make(name)
        env.reset(seed=1)
        raw = env.unwrapped
        raw.state = np.array(start, dtype=np.float64)
        rng = np.random.default_rng(number)
        steps = []
        for _ in range(120):
            action = int(rng.integers(env.action_space.n))
            obs, reward, terminated, truncated, _ = raw.step(action)
            steps.append([action, [float(x) for x in obs], float(reward), bool(terminated)])
            if terminated:
                break
        walks.append({"name": name, "start": start, "steps": steps})
versions = {"gymnasium": gymnasium.__version__, "numpy": np.__version__, "python": sys.version.split()[0]}
json.dump({"versions": versions, "walks": walks}, sys.stdout)
