"""Scrapes a run that trains and hands every scrape to Prometheus' own Python parsers: the strict one for OpenMetrics and
the one for the older text format. Usage: scrape.py HOST:PORT [COUNT] [FILE]; FILE keeps the last scrape. Needs
prometheus_client."""

import importlib.metadata
import sys
import time
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format


def samples(parse, text):
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in parse(text) for s in family.samples}


def main(address, count=1000, file=None):
    series, epochs, slowest, start = None, set(), 0.0, time.time()
    for _ in range(count):
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            kind, text = answer.headers["Content-Type"], answer.read().decode()
        slowest = max(slowest, time.perf_counter() - began)
        assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8", kind
        found = samples(openmetrics, text)
        older = samples(text_format, text)
        assert older.keys() == found.keys(), older.keys() ^ found.keys()
        series = series or found.keys()
        assert found.keys() == series, found.keys() ^ series
        epochs.add(found["foxhunt_epoch", ()])
    if file:
        with open(file, "w") as out:
            out.write(text)
    print(f"prometheus_client {importlib.metadata.version('prometheus_client')}: "
          f"{count} scrapes in {time.time() - start:.1f} s, slowest {1e3 * slowest:.1f} ms, {len(series)} series each, "
          f"{len(epochs)} epochs seen, healthy {found['foxhunt_healthy', ()]:.0f}, loss {found['foxhunt_loss', ()]:.4g}")


if __name__ == "__main__":
    main(sys.argv[1], *(int(n) for n in sys.argv[2:3]), *sys.argv[3:4])
