#!/usr/bin/env bash
# Runs the GPU bundle on a machine with a device and nothing else of this project.
#
#   gpu-bundle/run.sh [parity] [engine] [learn] [sanitizer] [replay] [quick] [update] [collect] [loop] [precision] [soak] [peers] [profile]
#
# Each stage writes a log to $OUT (default ./gpu-out) and the table of results comes last. Exit 1 if a stage failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$PWD/gpu-out}
mkdir -p "$out"
stages=${*:-parity engine learn sanitizer replay update collect loop precision peers}
export PATH=$PATH:/usr/local/cuda/bin:/opt/cuda/bin FOXHUNT_REQUIRE_GPU=1 FOXHUNT_CACHE_DIR=${FOXHUNT_CACHE_DIR:-/tmp/foxhunt-cache}

# NVRTC: the toolkit's, else the one that comes with PyTorch.
if [ -z "${FOXHUNT_NVRTC:-}" ]; then
  for dir in /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib \
    "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)"/nvidia/cu*/lib; do
    if ls "$dir"/libnvrtc.so* >/dev/null 2>&1; then
      export FOXHUNT_NVRTC=$dir
      break
    fi
  done
fi
{
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,memory.total --format=csv,noheader
  echo "NVRTC in ${FOXHUNT_NVRTC:-the loader path}; commit $(cat "$here/COMMIT" 2>/dev/null || echo unknown)"
} | tee "$out/machine.txt"

table=""
status=0
stage() { # name, seconds, command ...; `bench ...` is a bench of foxhunt: table to the log, figures to NAME.json
  local name=$1 limit=$2 start=$SECONDS rc
  shift 2
  if [ "$1" = bench ]; then
    shift
    timeout "$limit" "$here/foxhunt" bench "$@" --json >"$out/$name.json" 2>"$out/$name.log"
  else
    timeout "$limit" "$@" >"$out/$name.log" 2>&1
  fi
  rc=$?
  table+=$(printf '%-22s %-7s %4d s  %s' "$name" "$([ $rc = 0 ] && echo ok || echo "rc $rc")" $((SECONDS - start)) "$(tail -n 1 "$out/$name.log" | cut -c1-110)")$'\n'
  [ $rc = 0 ] || status=1
}

for s in $stages; do
  case $s in
  parity) stage parity 240 "$here/gpu" ;;
  sanitizer)
    for tool in memcheck racecheck synccheck initcheck; do
      stage "$tool" 110 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/gpu" --small ${SANITIZE:-parity_state parity_batch_larger parity_published parity_uniform compact_ rank_ties rank_cycle rank_captured hot_path_graph bits collect_ learner_equals_the_cpu_for_every_cluster learner_graph learner_skips precision_ guard_}
    done
    ;;
  engine) stage engine 120 "$here/it" cuda:: --test-threads 1 ;;
  learn) stage learn 120 "$here/prove_learning" --device cuda ;;
  replay)
    stage replay 240 bench replay
    stage compact 120 bench replay --storage compact
    ;;
  soak) stage soak 700 "$here/foxhunt" bench soak --json ;;
  quick) stage replay 120 bench replay --capacity 1048576 --rank-capacity 1048576 ;;
  update | collect) stage "$s" 120 bench "$s" ;;
  loop) stage loop 120 bench loop --fallback ;;
  precision)
    for mode in tf32x3 tf32 bf16; do
      stage "update-$mode" 60 bench update --precision "$mode"
      stage "loop-$mode" 60 bench loop --precision "$mode" --envs 1024,4096,16384
    done
    ;;
  profile) stage profile 120 ncu --clock-control none -k regex:'sample_proportional|update_priorities|insert_rows' -s 2000 -c 6 --set full "$here/foxhunt" bench replay --capacity 1048576 --rank-capacity 1048576 ;;
  peers)
    if ls "$here"/wheels/*.whl >/dev/null 2>&1; then
      python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site "$here"/wheels/*.whl
    fi
    cd "$here/peers" || exit 1
    PYTHONPATH=/tmp/site OUT=$out stage peers "${PEER_SECONDS:-230}" python3 per_bench.py --total "${PEER_TOTAL:-146}"
    cd "$OLDPWD" || exit 1
    ;;
  *) echo "unknown stage $s" >&2; status=1 ;;
  esac
done

for log in parity engine learn replay compact update collect loop {update,loop}-{tf32x3,tf32,bf16} soak peers; do
  [ -f "$out/$log.log" ] && { echo "--- $log"; tail -n 75 "$out/$log.log"; }
done
echo "--- stages"
printf '%s' "$table"
exit $status
