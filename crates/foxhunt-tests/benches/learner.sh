#!/usr/bin/env bash
# One learner update on the CPU beside PyTorch, in turns, with the same number of threads.
# Usage: learner.sh [python] [rounds] [threads]     a Python that has torch, numpy and cpprb
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=${1:-python3}
rounds=${2:-3}
threads=${3:-$(nproc)}
export RAYON_NUM_THREADS=$threads OMP_NUM_THREADS=$threads
out=$(mktemp)
trap 'rm "$out"' EXIT
cargo bench --package foxhunt-tests --bench learner --no-run
for _ in $(seq "$rounds"); do
    cargo bench --quiet --package foxhunt-tests --bench learner | tee -a "$out"
    "$python" crates/foxhunt-tests/benches/peers/learner_peer.py | tee -a "$out"
done
"$python" - "$out" <<'PY'
import json, sys
best, medians = {}, {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    if "us_min" in row:
        best[row["part"]] = min(row["us_min"], best.get(row["part"], 1e18))
        medians.setdefault(row["part"], []).append(row["us_median"])
for part in best:
    print(f"{part:40} min {best[part]:9.1f} us   medians {medians[part]}")
for suffix in ("update", "update_with_replay"):
    peers = [best[p] for p in best if p.startswith("torch_") and p.endswith("_" + suffix)]
    print(f"{suffix}: torch / foxhunt = {min(peers) / best[suffix]:.2f} (smallest times)")
PY
