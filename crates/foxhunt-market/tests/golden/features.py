"""Golden values of the 48 market features, from NumPy, pandas and TA-Lib alone.

    pip install numpy pandas TA-Lib
    python features.py ../../../../samples/eurusd_1h_2017_ask.csv

writes features.json: the first bars of the sample (with a made-up volume gap and spread, so that those features
have something to measure), and every feature at some late bars. Nothing of Foxhunt is used.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import talib

N_BARS = 1600
ROWS = [1000, 1001, 1017, 1100, 1234, 1300, 1499, 1598, 1599]

frame = pd.read_csv(sys.argv[1]).head(N_BARS)
stamps = pd.to_datetime(frame["Time"], format="%d.%m.%Y %H:%M:%S.%f", utc=True)
time = stamps.astype("datetime64[ns, UTC]").astype("int64")
o, h, l, c = (frame[name].astype(float) for name in ["Open", "High", "Low", "Close"])
t = np.arange(N_BARS)
volume = frame["Volume"].astype(float).where(t % 37 != 5, 0.0)
spread = pd.Series(1e-5 * (5 + (t * 7919) % 13 + (t % 24)), dtype=float)

lo, hi, ll, lc = np.log(o), np.log(h), np.log(l), np.log(c)
r = lc.diff()
f = {}
for k in [1, 2, 4, 8, 16, 32, 64, 128]:
    f[f"return_{k}"] = lc.diff(k)
f["gap"] = lo - lc.shift(1)
f["body"] = lc - lo
f["range"] = hi - ll
f["upper_shadow"] = hi - np.maximum(lo, lc)
f["lower_shadow"] = np.minimum(lo, lc) - ll
f["close_location"] = ((2 * c - h - l) / (h - l)).where(h > l, 0.0)
for w in [8, 32, 128]:
    f[f"volatility_{w}"] = r.rolling(w).std(ddof=0)
f["volatility_ratio"] = np.log(f["volatility_8"] / f["volatility_128"]).clip(-5, 5)
f["parkinson_32"] = np.sqrt(((hi - ll) ** 2).rolling(32).mean() / (4 * math.log(2)))
f["garman_klass_32"] = np.sqrt(
    (0.5 * (hi - ll) ** 2 - (2 * math.log(2) - 1) * (lc - lo) ** 2).rolling(32).mean()
)


def z(x, w):
    """z-score over w values, each window from scratch."""
    windows = np.lib.stride_tricks.sliding_window_view(x.to_numpy(), w)
    out = np.full(len(x), np.nan)
    std = windows.std(axis=1)
    out[w - 1 :] = np.where(std > 0, (windows[:, -1] - windows.mean(axis=1)) / np.where(std > 0, std, 1), 0.0)
    return pd.Series(out)


for w in [8, 16, 32, 64, 128, 256]:
    f[f"z_{w}"] = z(lc, w)
for w in [32, 128, 256]:
    f[f"mean_distance_{w}"] = lc - lc.rolling(w).mean()
for span in [12, 64]:
    f[f"ema_distance_{span}"] = lc - lc.ewm(span=span, adjust=False).mean()
f["rsi_14"] = (pd.Series(talib.RSI(c.to_numpy(), 14)) - 50) / 50
macd, _, histogram = talib.MACD(c.to_numpy(), 12, 26, 9)
f["macd"] = pd.Series(macd) / c
f["macd_histogram"] = pd.Series(histogram) / c
# TA-Lib's stochastic: fast %K over 14, fast %D its simple average over 3, both 0 to 100.
k, d = talib.STOCHF(h.to_numpy(), l.to_numpy(), c.to_numpy(), 14, 3, 0)
f["stochastic_k"] = pd.Series(k) / 50 - 1
f["stochastic_d"] = pd.Series(d) / 50 - 1
upper, middle, lower = (pd.Series(x) for x in talib.BBANDS(c.to_numpy(), 20, 2.0, 2.0, 0))
f["bollinger_b"] = (c - middle) / (upper - middle)
f["bollinger_width"] = (upper - lower) / middle
f["atr_14"] = pd.Series(talib.ATR(h.to_numpy(), l.to_numpy(), c.to_numpy(), 14)) / c
high, low = (pd.Series(talib.MAX(h.to_numpy(), 128)), pd.Series(talib.MIN(l.to_numpy(), 128)))
f["channel_128"] = 2 * (c - low) / (high - low) - 1
f["volume_z_32"] = z(np.log1p(volume), 32)
f["flow_32"] = (volume * np.sign(r)).rolling(32).sum() / volume.rolling(32).sum()
f["spread"] = spread / c
f["spread_z_64"] = z(spread / c, 64)
day = (stamps.dt.hour * 60 + stamps.dt.minute) / 1440
week = (stamps.dt.day_of_week + day) / 7
for name, share in [("day", day), ("week", week)]:
    f[f"{name}_sin"] = np.sin(2 * np.pi * share)
    f[f"{name}_cos"] = np.cos(2 * np.pi * share)
assert len(f) == 48

volatility = r.rolling(32).std(ddof=0)
router = {
    "spread": spread,
    "median_spread": spread.rolling(256).median(),
    "volatility": volatility,
    "median_volatility": volatility.rolling(256).median(),
}


def at_rows(series):
    return [float(series.iloc[row]) for row in ROWS]


golden = {
    "made_by": {
        "script": "features.py",
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "pandas": pd.__version__,
        "TA-Lib": talib.__version__,
        "TA-Lib C": talib.__ta_version__.decode(),
    },
    "rows": ROWS,
    "bars": {
        "time": [int(x) for x in time],
        "open": o.tolist(),
        "high": h.tolist(),
        "low": l.tolist(),
        "close": c.tolist(),
        "volume": volume.tolist(),
        "spread": [float(f"{x:.5f}") for x in spread],
    },
    "features": {name: at_rows(series) for name, series in f.items()},
    "router": {name: at_rows(series) for name, series in router.items()},
}
for values in golden["features"].values():
    assert all(map(math.isfinite, values))
Path(__file__).with_name("features.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
