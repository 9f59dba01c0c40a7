#!/usr/bin/env bash
# Everything that only a GPU can show, in one run of at most 20 minutes: doctor, tests, compute-sanitizer, benchmarks.
#
#   benchmarks/gpu.sh OUT [WHEELS]
#
# OUT: directory for results (log.txt, failures.txt, summary.json, *.json and *.svg of the benchmarks). WHEELS: directory of wheels
# to install first, without an index, into a directory of their own: nvidia-nvimgcodec-cu12 and nvidia-nvjpeg-cu12 where
# they are missing. Uses `python3` (or $PYTHON) with the torch, CuPy, NVRTC, pytest and so on that it has. One failing step
# does not stop the others; the summary comes last, and the exit status is 0 if every step passed.
#
# SECONDS_IN_ALL (default 1200) limits all: steps that find no time left say so. STEPS, a regular expression, chooses some
# by their names, beside those that install: with "doctor|tests|check" and then "benchmark" two runs, each into an OUT of its
# own, do what one does. failures.txt has each test's failure as soon as it is known, current.txt what the step under way says.
# CUAUG_COMMIT names the commit where there is no git history to ask.
set -uo pipefail

OUT=$(mkdir -p "${1:?usage: benchmarks/gpu.sh OUT [WHEELS]}" && cd "$1" && pwd)
WHEELS=${2:+$(cd "$2" && pwd)}
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
LIMIT=${SECONDS_IN_ALL:-1200}
LOG=$OUT/log.txt
rm -f "$OUT/failures.txt"
: >"$LOG"
export PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HYPOTHESIS_PROFILE=ci
export CUAUG_CACHE_DIR=${CUAUG_CACHE_DIR:-$(mktemp -d)}
SITE=$(mktemp -d)
export PYTHONPATH=$SITE:$PWD${PYTHONPATH:+:$PYTHONPATH}
WORKERS=$("$PYTHON" -c 'import os; print(max(1, min(10, len(os.sched_getaffinity(0)) - 2)))')
XDIST=$("$PYTHON" -c 'import xdist' 2>/dev/null && echo "-n $WORKERS")

NAMES=() CODES=() TIMES=()

# step NAME SECONDS WANTED COMMAND...: runs it with a limit; it passes if its exit status is WANTED.
step() {
    local name=$1 seconds=$2 wanted=$3 left=$((LIMIT - SECONDS)) begin=$SECONDS code part
    shift 3
    [[ $name =~ ^install || $name =~ ${STEPS:-.} ]] || return 0
    part=$OUT/current.txt
    ((left < seconds)) && seconds=$left
    echo "=== $name" | tee -a "$LOG"
    if ((seconds < 5)); then
        echo "no time left" >"$part"
        code=124
    else
        timeout --kill-after=5 "$seconds" "$@" >"$part" 2>&1
        code=$?
    fi
    cat "$part" >>"$LOG"
    if ((code == wanted)); then tail -n "${SHOW:-3}" "$part"; else tail -n 25 "$part"; fi
    NAMES+=("$name") TIMES+=($((SECONDS - begin)))
    if ((code == wanted)); then CODES+=(0); elif ((code == 0)); then CODES+=("0 instead of $wanted"); else CODES+=("$code"); fi
    rm -f "$part"
}

SHOW=12 step "nvidia-smi" 30 0 nvidia-smi
if [[ -n $WHEELS ]]; then
    # Where another package owns the name `nvidia`, the wheels are found only beside it.
    step "install wheels" 60 0 bash -c '
        pip="$0 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade"
        $pip --target "$1" "${@:2}" && "$0" -c "import nvidia.nvimgcodec" || $pip "${@:2}"' "$PYTHON" "$SITE" "$WHEELS"/*.whl
fi
step "install cuaug" 120 0 "$PYTHON" -m pip install --no-deps --no-build-isolation --no-cache-dir -e .
SHOW=30 step "doctor" 150 0 "$PYTHON" -m cuaug doctor --require-cuda
# The GPU's part of the suite, room by room: the lowest layer first, so that what it says comes even if all breaks.
TEST=("$PYTHON" -m pytest -p no:cacheprovider --continue-on-collection-errors --tb=short -r fE)
for room in "kernels tests/cuda/test_kernels.py tests/properties" "decoder tests/cuda/test_decoding.py tests/codec" \
    "CUDA tests/cuda --ignore=tests/cuda/test_kernels.py --ignore=tests/cuda/test_decoding.py" "loader tests/loader" \
    "rest tests --ignore=tests/cuda --ignore=tests/properties --ignore=tests/codec --ignore=tests/loader"; do
    read -r name where <<<"$room"
    # shellcheck disable=SC2086  # several paths, and options
    SHOW=5 step "tests on the GPU: $name" 150 0 env CUAUG_REQUIRE_CUDA=1 CUAUG_FAILURES="$OUT/failures.txt" \
        "${TEST[@]}" -m cuda --timeout 120 $XDIST $where
done
DRIVER=(compute-sanitizer --error-exitcode 99 --print-limit 5 --report-api-errors no)
RUN=("$PYTHON" -m tests.cuda.sanitize_driver)
step "memcheck" 120 0 "${DRIVER[@]}" --tool memcheck "${RUN[@]}" --every 4
step "memcheck finds a planted mistake" 120 99 "${DRIVER[@]}" --tool memcheck "${RUN[@]}" --every 40 --mistake bounds
step "racecheck" 120 0 "${DRIVER[@]}" --tool racecheck "${RUN[@]}" --every 8
step "racecheck finds a planted mistake" 120 99 "${DRIVER[@]}" --tool racecheck "${RUN[@]}" --every 40 --mistake race
DATA=$(dirname "$SITE")/bench-data
SHOW=32 step "benchmark: kernels, targets" 60 0 "$PYTHON" benchmarks/gpu_kernels.py --require-targets \
    --out "$OUT/gpu_kernels.json"
SHOW=70 step "benchmark: loader, DALI" 300 0 "$PYTHON" benchmarks/gpu_loader.py --data "$DATA" --out "$OUT/gpu_loader.json"
SHOW=20 step "benchmark: training step" 180 0 "$PYTHON" benchmarks/training_step.py --threads 6 --data "$DATA" \
    --out "$OUT"
SHOW=14 step "benchmark: batches, Kornia, torchvision" 90 0 "$PYTHON" benchmarks/batch_augmentation.py --device cuda \
    --out "$OUT/batch_augmentation.json"
SHOW=8 step "benchmark: Python a sample" 60 0 "$PYTHON" benchmarks/gpu_python.py --data "$DATA" \
    --out "$OUT/gpu_python.json"
if "$PYTHON" -c 'import kornia' 2>/dev/null; then
    SHOW=8 step "benchmark: launches" 60 0 "$PYTHON" benchmarks/launches.py --out "$OUT/launches.json"
else
    echo "=== benchmark: launches: skipped, Kornia is not importable here" | tee -a "$LOG"
fi
SHOW=5 step "tests on its CPU" 180 0 env CUDA_VISIBLE_DEVICES= "${TEST[@]}" -m "not cuda and not slow" $XDIST

echo
echo "=== summary, after $SECONDS s"
status=0
for i in "${!NAMES[@]}"; do
    printf '%-36s %4s s  %s\n' "${NAMES[$i]}" "${TIMES[$i]}" "$([[ ${CODES[$i]} == 0 ]] && echo passed || echo "FAILED (${CODES[$i]})")"
    [[ ${CODES[$i]} == 0 ]] || status=1
done | tee -a "$LOG"
for code in "${CODES[@]}"; do [[ $code == 0 ]] || status=1; done
printf '%s\n' "${NAMES[@]}" | paste -d '\t' - <(printf '%s\n' "${TIMES[@]}") <(printf '%s\n' "${CODES[@]}") |
    "$PYTHON" -c '
import json, os, subprocess, sys
from datetime import datetime, timezone

def said(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None

rows = [line.rstrip("\n").split("\t") for line in sys.stdin]
result = {
    "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    "commit": said("git", "rev-parse", "HEAD") or os.environ.get("CUAUG_COMMIT"),
    "device": said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
    "steps": [{"name": name, "seconds": int(seconds), "status": code} for name, seconds, code in rows],
}
json.dump(result, open(sys.argv[1], "w"), indent=2)' "$OUT/summary.json"
exit $status
