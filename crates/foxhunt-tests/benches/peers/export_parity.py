"""Exported policies in other programs: every ONNX file in onnxruntime, every safetensors file in NumPy, against the
Q-values of our own network on 10,000 states. Usage: export_parity.py FOLDER, as the example `export_parity` fills it.
Prints one line a policy and format; exits 1 unless every argmax is the same and every value within 1e-5 (of 1, or of the
Q-value where that is larger). Needs onnx, onnxruntime, numpy, safetensors."""

import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import safetensors
import safetensors.numpy

TOLERANCE = 1e-5


def metadata_of(model):
    return {entry.key: entry.value for entry in model.metadata_props}


def run_onnx(path, states):
    """All states at once, and the first one alone: the batch size is free."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map == metadata_of(model)
    q = session.run(["q_values"], {"state": states})[0]
    one = session.run(["q_values"], {"state": states[:1]})[0]
    np.testing.assert_allclose(one, q[:1], rtol=1e-6, atol=1e-6)
    return q, metadata_of(model)


def run_numpy(path, states):
    """The network by its definition, in f64, from the arrays."""
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()

    def linear(name, x):
        weight, bias = arrays.pop(name + ".weight"), arrays.pop(name + ".bias")
        return x @ weight.astype(np.float64).T + bias.astype(np.float64)

    x = states.astype(np.float64)
    layer = 0
    while f"layer{layer}.weight" in arrays:
        x = np.maximum(linear(f"layer{layer}", x), 0)
        layer += 1
    distribution = json.loads(metadata["foxhunt.distribution"])
    suffix = {None: "", "categorical": "_logits", "quantiles": "_quantiles"}[distribution and distribution["kind"]]
    atoms = distribution["atoms"] if distribution else 1

    def by_atom(name):
        values = linear(name + suffix, x)
        return values.reshape(len(x), -1, atoms)

    if metadata["foxhunt.dueling"] == "true":
        value, advantage = by_atom("value"), by_atom("advantage")
        parts = branches(advantage, metadata)
        values = np.concatenate([value + part - part.mean(1, keepdims=True) for part in parts], 1)
    else:
        values = by_atom("q")
    assert not arrays, f"unused arrays {list(arrays)}"
    if suffix == "_logits":
        p = np.exp(values - values.max(2, keepdims=True))
        returns = np.linspace(distribution["v_min"], distribution["v_max"], atoms)
        return (p / p.sum(2, keepdims=True)) @ returns, metadata
    return values.mean(2), metadata


def branches(q, metadata):
    return np.split(q, np.cumsum(json.loads(metadata["foxhunt.branches"]))[:-1], axis=1)


def check_metadata(metadata, state_dim, n_outputs):
    assert metadata["foxhunt.format"] == ("1" if metadata["foxhunt.distribution"] == "null" else "2")
    assert len(json.loads(metadata["foxhunt.inputs"])) == state_dim
    normaliser = json.loads(metadata["foxhunt.normaliser"])
    lengths = {len(normaliser[key]) for key in ("names", "mean", "std")} | {len(json.loads(metadata["foxhunt.look_back"]))}
    assert lengths == {state_dim - 3}, lengths
    assert sum(len(branch) for branch in json.loads(metadata["foxhunt.actions"])) == n_outputs


def main(folder):
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, numpy {np.__version__}, "
          f"safetensors {safetensors.__version__}")
    states = np.fromfile(folder / "states.bin", np.float32).reshape(10_000, -1)
    names = sorted(path.stem for path in folder.glob("*.onnx"))
    assert len(names) == 18, names
    good = True
    for name in names:
        own = np.fromfile(folder / f"{name}.q.bin", np.float32).reshape(len(states), -1)
        for suffix, run in [("onnx", run_onnx), ("safetensors", run_numpy)]:
            q, metadata = run(str(folder / f"{name}.{suffix}"), states)
            check_metadata(metadata, states.shape[1], own.shape[1])
            error = np.abs(q - own)
            scaled = (error / np.maximum(1, np.abs(own))).max()
            same = np.ones(len(states), bool)
            for a, b in zip(branches(own, metadata), branches(q, metadata)):
                same &= a.argmax(1) == b.argmax(1)
            good &= bool(scaled <= TOLERANCE and same.all())
            print(f"{name:21} {suffix:11} outputs {own.shape[1]:2}  |Q| up to {np.abs(own).max():7.3f}  "
                  f"max error {error.max():.2e}  scaled {scaled:.2e}  same argmax {same.sum()} of {len(states)}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
