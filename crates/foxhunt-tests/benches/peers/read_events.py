"""Reads a run's TensorBoard files with TensorBoard's own EventAccumulator and compares every scalar with metrics.jsonl.
Usage: read_events.py RUN. Needs tensorboard, numpy."""

import json
import pathlib
import sys

import numpy as np
import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main(run):
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    got = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}
    want = {}
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        prefix = {"epoch": "", "validation": "validation/"}.get(line["kind"])
        if prefix is None:
            continue
        for key, value in line.items():
            if key not in ("kind", "epoch") and isinstance(value, (int, float)):
                want.setdefault(prefix + key, []).append((line["epoch"], float(np.float32(value))))
    assert got.keys() == want.keys(), got.keys() ^ want.keys()
    for tag in tags:
        assert got[tag] == want[tag], (tag, got[tag][:3], want[tag][:3])
    files = sorted(path.name for path in (run / "tensorboard").iterdir())
    print(f"tensorboard {tensorboard.__version__}: {len(files)} files, {len(tags)} tags, "
          f"{sum(map(len, got.values()))} scalars, all as in metrics.jsonl")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
