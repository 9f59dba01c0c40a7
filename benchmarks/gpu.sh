#!/usr/bin/env bash
# All checks that need a GPU, in one run of at most 20 minutes: doctor, tests, compute-sanitizer, benchmarks.
#
#   benchmarks/gpu.sh OUT [WHEELS]
#
# OUT: directory for results: log.txt (with the running step's output), failures.txt (each failing test at once),
#   summary.json, and a JSON per benchmark.
# WHEELS: directory of wheels to install first, without an index, into a directory of their own: nvidia-nvimgcodec-cu12
#   and nvidia-nvjpeg-cu12, if they are missing.
#
# The script uses `python3` (or $PYTHON) with its torch, CuPy, NVRTC, pytest and so on; it reports missing packages first.
# A failing step does not stop the others. The most informative steps come first. The summary with the benchmarks' figures
# comes last. The exit status is 0 if every step passed.
#
# Environment:
#   SECONDS_IN_ALL (default 1200)   limit for the whole run; steps without time left report so
#   STEPS                           regular expression that selects steps by name; installing steps always run
#   CUAUG_CACHE_DIR                 absolute path of the compiled kernels (default: a new directory)
#   CUAUG_COMMIT                    the commit's name, for a copy without git history
#
# If a call may take ten minutes and return eight files, three calls replace one. Give each SECONDS_IN_ALL=560 and its own
# OUT; the first two contain all targets:
#
#   STEPS="smi|doctor|kernel|decoder"     STEPS="images|training|batches"     STEPS="CUDA|loader|check|rest|Python|launches|CPU"
#
# `benchmarks/gpu_summary.py OUT OUT OUT` prints their figures in one table. If cuaug's library loads, the script does not
# install it: a cuaug/_kernels.so built elsewhere from the same sources saves a minute per call.
#
# Calls with the same CUAUG_CACHE_DIR compile kernels once. A machine without a GPU, with the same NVRTC, can fill it:
#
#   CUAUG_CACHE_DIR=DIR python3 -c "from cuaug.devices import nvrtc; nvrtc.cached(90)"      # 90: H100 and H200
set -uo pipefail

OUT=$(mkdir -p "${1:?usage: benchmarks/gpu.sh OUT [WHEELS]}" && cd "$1" && pwd)
WHEELS=${2:+$(cd "$2" && pwd)}
cd "$(dirname "$0")/.." || exit
PYTHON=${PYTHON:-python3}
LIMIT=${SECONDS_IN_ALL:-1200}
LOG=$OUT/log.txt
rm -f "$OUT/failures.txt"
: >"$LOG"
export COLUMNS=200  # or else pytest truncates reasons
export PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HYPOTHESIS_PROFILE=ci
CUAUG_CACHE_DIR=${CUAUG_CACHE_DIR:-$(mktemp -d)}
export CUAUG_CACHE_DIR
SITE=$(mktemp -d)
export PYTHONPATH=$SITE:$PWD${PYTHONPATH:+:$PYTHONPATH}
WORKERS=$("$PYTHON" -c 'import os; print(max(1, min(10, len(os.sched_getaffinity(0)) - 2)))')
XDIST=()
"$PYTHON" -c 'import xdist' 2>/dev/null && XDIST=(-n "$WORKERS")
LIMITED=()
"$PYTHON" -c 'import pytest_timeout' 2>/dev/null && LIMITED=(--timeout 120)

NAMES=() CODES=() TIMES=()

# step NAME SECONDS EXPECTED COMMAND...: runs a command with a time limit; it passes if its exit status is EXPECTED.
step() {
    local name=$1 seconds=$2 expected=$3 left=$((LIMIT - SECONDS)) begin=$SECONDS code from
    shift 3
    [[ $name =~ ^(needs|install) || $name =~ ${STEPS:-.} ]] || return 0
    ((left < seconds)) && seconds=$left
    echo "=== $name" | tee -a "$LOG"
    from=$(($(wc -c <"$LOG") + 1))
    if ((seconds < 5)); then
        echo "no time left" >>"$LOG"
        code=124
    else
        timeout --kill-after=5 "$seconds" "$@" >>"$LOG" 2>&1
        code=$?
    fi
    tail -c "+$from" "$LOG" | tail -n "$( ((code == expected)) && echo "${SHOW:-3}" || echo 25)"
    NAMES+=("$name") TIMES+=($((SECONDS - begin)))
    if ((code == expected)); then CODES+=(0); elif ((code == 0)); then CODES+=("0 instead of $expected"); else CODES+=("$code"); fi
}

SHOW=12 step "nvidia-smi" 30 0 nvidia-smi
if [[ -n $WHEELS ]]; then
    # shellcheck disable=SC2016  # the inner shell expands it
    # If another package owns the name `nvidia`, Python finds the wheels only beside that package.
    step "install wheels" 60 0 bash -c '
        pip="$0 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade"
        $pip --target "$1" "${@:2}" && "$0" -c "import nvidia.nvimgcodec" || $pip "${@:2}"' "$PYTHON" "$SITE" "$WHEELS"/*.whl
fi
SHOW=20 step "needs" 30 0 "$PYTHON" benchmarks/gpu_needs.py
"$PYTHON" -c 'import cuaug._runtime.native' 2>/dev/null ||
    step "install cuaug" 120 0 "$PYTHON" -m pip install --no-deps --no-build-isolation --no-cache-dir -e .
SHOW=30 step "doctor" 150 0 "$PYTHON" -m cuaug doctor --require-cuda
# The GPU's tests, room by room, the lowest layer first: its results arrive even if all later steps fail.
TEST=("$PYTHON" -m pytest -p no:cacheprovider --continue-on-collection-errors --tb=short -r fE)
# room NAME PATH...
room() {
    SHOW=5 step "tests on the GPU: $1" 150 0 env CUAUG_REQUIRE_CUDA=1 CUAUG_FAILURES="$OUT/failures.txt" \
        "${TEST[@]}" -m cuda "${LIMITED[@]}" "${XDIST[@]}" "${@:2}"
}
room kernels tests/cuda/test_kernels.py tests/properties
room decoder tests/cuda/test_decoding.py tests/codec
room CUDA tests/cuda --ignore=tests/cuda/test_kernels.py --ignore=tests/cuda/test_decoding.py
room loader tests/loader
DRIVER=(compute-sanitizer --error-exitcode 99 --print-limit 5 --report-api-errors no)
RUN=("$PYTHON" -m tests.cuda.sanitize_driver)
step "memcheck" 120 0 "${DRIVER[@]}" --tool memcheck "${RUN[@]}" --every 4
step "racecheck" 120 0 "${DRIVER[@]}" --tool racecheck "${RUN[@]}" --every 8
room rest tests --ignore=tests/cuda --ignore=tests/properties --ignore=tests/codec --ignore=tests/loader
step "memcheck finds a planted mistake" 120 99 "${DRIVER[@]}" --tool memcheck "${RUN[@]}" --every 40 --mistake bounds
step "racecheck finds a planted mistake" 120 99 "${DRIVER[@]}" --tool racecheck "${RUN[@]}" --every 40 --mistake race
DATA=$(dirname "$SITE")/bench-data
SHOW=40 step "benchmark: fused kernel, targets" 120 0 "$PYTHON" benchmarks/gpu_kernels.py --require-targets \
    --out "$OUT/gpu_kernels.json"
SHOW=70 step "benchmark: images a second, DALI" 300 0 "$PYTHON" benchmarks/gpu_loader.py --data "$DATA" --out "$OUT/gpu_loader.json"
TRAINING=$(mktemp -d)  # keeps its plot out of OUT, as the JSON has the same figures
SHOW=20 step "benchmark: training step" 240 0 "$PYTHON" benchmarks/training_step.py --device cuda --threads 6 \
    --data "$DATA" --out "$TRAINING"
cp "$TRAINING"/*.json "$OUT" 2>/dev/null
SHOW=14 step "benchmark: batches, Kornia, torchvision" 90 0 "$PYTHON" benchmarks/batch_augmentation.py --device cuda \
    --out "$OUT/batch_augmentation.json"
SHOW=8 step "benchmark: Python a sample" 60 0 "$PYTHON" benchmarks/gpu_python.py --data "$DATA" \
    --out "$OUT/gpu_python.json"
[[ -n $("$PYTHON" -c 'from importlib.util import find_spec as f; print(f("kornia") or "")') ]] &&
    SHOW=8 step "benchmark: launches" 60 0 "$PYTHON" benchmarks/launches.py --out "$OUT/launches.json"
SHOW=5 step "tests on its CPU" 180 0 env CUDA_VISIBLE_DEVICES= CUAUG_FAILURES="$OUT/failures.txt" \
    "${TEST[@]}" -m "not cuda and not slow" "${LIMITED[@]}" "${XDIST[@]}"

echo
echo "=== summary, after $SECONDS s"
status=0
for i in "${!NAMES[@]}"; do
    printf '%-36s %4s s  %s\n' "${NAMES[$i]}" "${TIMES[$i]}" "$([[ ${CODES[$i]} == 0 ]] && echo passed || echo "FAILED (${CODES[$i]})")"
    [[ ${CODES[$i]} == 0 ]] || status=1
done | tee -a "$LOG"
for code in "${CODES[@]}"; do [[ $code == 0 ]] || status=1; done
printf '%s\n' "${NAMES[@]}" | paste -d '\t' - <(printf '%s\n' "${TIMES[@]}") <(printf '%s\n' "${CODES[@]}") |
    "$PYTHON" benchmarks/gpu_summary.py --steps "$OUT" | tee -a "$LOG"
exit $status
