#!/usr/bin/env bash
# CPU replay beside its peers on this machine: Foxhunt, peers, peers, Foxhunt, so that neither always runs first.
# Usage: replay.sh [python]        a Python that has cpprb, torch, torchrl and tensordict (see peers/replay_peers.py)
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=${1:-python3}
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
cargo bench --package foxhunt-tests --bench replay --no-run
ours() { cargo bench --quiet --package foxhunt-tests --bench replay | tee "$out/$1"; }
peers() { "$python" crates/foxhunt-tests/benches/peers/replay_peers.py | tee "$out/$1"; }
ours 1
peers 2
peers 3
ours 4
"$python" crates/foxhunt-tests/benches/peers/replay_peers.py --table "$out"/{1,2,3,4}
