#!/usr/bin/env bash
# Exported policies of every head, with and without dueling, in onnxruntime and NumPy beside our own network.
# Usage: export_parity.sh [python]     a Python that has onnx, onnxruntime, numpy and safetensors
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
cargo run --quiet --package foxhunt-tests --example export_parity -- "$out"
"${1:-python3}" crates/foxhunt-tests/benches/peers/export_parity.py "$out"
