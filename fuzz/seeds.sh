#!/bin/sh
# Writes first inputs for every fuzz target to fuzz/corpus: the bundled samples cut small, in each form a file can have,
# settings that exist, and the files of a run of fuzz/tiny.toml. Needs a built `foxhunt`, by default the debug build.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
foxhunt=${1:-${CARGO_TARGET_DIR:-$root/target}/debug/foxhunt}
corpus=$root/fuzz/corpus
mkdir -p "$corpus/text" "$corpus/binary" "$corpus/settings" "$corpus/checkpoint"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Text: two bytes of options in front; 7 sorts, drops repetitions and fills gaps, 8 is a decimal comma, 64 a symbol.
eurusd=$root/samples/eurusd_1h_2017_ask.csv
put() { { printf "$2"; cat; } > "$corpus/text/$1"; }
head -12 "$eurusd" | put hours '\000\200'
head -400 "$eurusd" | put features '\000\377'
{ head -1 "$eurusd"; head -9 "$eurusd" | tail -8 | sort -r; head -3 "$eurusd" | tail -1; } | put unsorted '\007\101'
head -6 "$eurusd" | tr ',' ';' | tr '.' ',' | put comma '\010\100'
head -6 "$eurusd" | sed 's/^/"/; s/,/","/g; s/$/"\r/' | put quoted '\000\177'
gzip -dc "$root/samples/us_stocks_1d_2000_2013.csv.gz" | awk 'NR == 1 || NR % 500 == 2' | put symbols '\100\120'
printf 'timestamp,bid_open,bid_high,bid_low,bid_close,ask_open,ask_high,ask_low,ask_close,volume\n1772452800,1,2,1,2,1,2,1,2,0\n1772452860,1,2,1,2,1.1,2.1,1.1,2.1,1e18\n' | put quotes '\000\060'
printf '1499040000000,1.5,2,1,1.75,10,1499644799999,2,308,3,4,5\n1499040060000,1.5,2,1,1.75,10,1499644799999,2,308,3,4,5\n' | put klines '\000\061'
printf '<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\n2024.03.10\t01:59\t1\t2\t1\t2\n2024.03.10\t03:00\t1\t2\t1\t2\n' | put pair '\040\062'
printf '\357\273\277sep=;\nGmt time;O;H;L;C;V;spread\n01.01.2017 22:00:00.000;1;1;1;1;0;0.01\n01.01.2017 23:00:00.000 GMT+0100;1;1;1;1;0;0.01\n' | put bom '\020\063'

# Binary: forms of the same bars. Parquet and DBN are written by the tests of the loader (see fuzz/seeds).
head -9 "$eurusd" | gzip -n > "$corpus/binary/hours.gz"
cp "$root"/fuzz/seeds/* "$corpus/binary/"

# Settings: all of them, and each kind of value by --set.
"$foxhunt" train --show-settings > "$corpus/settings/all"
cp "$root/fuzz/tiny.toml" "$corpus/settings/tiny"
{
    printf -- '--set %s\n' 'network.head=branching' 'network.hidden=[8, 8]' \
        'learner.target={ kind = "hard", every = 7 }' 'exploration.epsilon.end=0.5' 'run.seed=9' 'data.repair=["gaps"]'
    echo '[learner]'
    echo 'batch = 8'
} > "$corpus/settings/set"

# Runs.
head -901 "$eurusd" > "$work/bars.csv"
"$foxhunt" train "$work/bars.csv" --config "$root/fuzz/tiny.toml" --out "$work/runs" > /dev/null 2>&1
run=$(dirname "$(ls "$work"/runs/*/settings.toml)")
newest=$(ls -d "$run"/checkpoints/epoch_* | sort | tail -1)
cp "$newest/manifest.json" "$newest/state.safetensors" "$run/policy/policy.json" "$run/policy/policy.safetensors" \
    "$run/metrics.jsonl" "$corpus/checkpoint/"
cp "$work"/runs/ledger.jsonl "$corpus/checkpoint/"
