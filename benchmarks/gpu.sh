#!/usr/bin/env bash
# Everything that needs a GPU, in stages of at most 9 minutes: a smoke run, tests, compute-sanitizer, benchmarks.
#
#   benchmarks/gpu.sh OUT [WHEELS] [--stage NAME] [--dry-run]
#
# OUT: directory for results: log.txt, failures.txt (each failing test at once), a JSON per benchmark, and
#   steps_STAGE.json. Each JSON names device, driver, commit and date.
# WHEELS: directory of wheels to install first, without an index, into a directory of their own: nvidia-nvimgcodec-cu12
#   and nvidia-nvjpeg-cu12, if they are missing, and av.
# --stage NAME: only this stage; its number does, too. Each stage works alone, on a fresh machine. benchmarks/README.md
#   has a table of them.
# --dry-run: all of it with tiny sizes on the fake GPU (tests/support/fake_gpu.py), where the figures mean nothing.
#
# A failing step does not stop the others. A missing tool or peer is named in the summary, and is no failure. The exit
# status is 0 if every step passed. `benchmarks/gpu_summary.py OUT...` prints the figures of one or several OUT beside
# the goals.
#
# Environment:
#   PYTHON            (default python3) with torch, CuPy, NVRTC, pytest and so on; gpu_needs.py lists what is missing
#   CUAUG_CACHE_DIR   absolute path of the compiled kernels (default: a new directory). A machine without a GPU, with the
#                     same NVRTC, can fill it:
#                     python3 -c "from cuaug.devices.nvrtc import cached; cached(90); cached(90, (), 'decode_jpeg')"
#   CUAUG_COMMIT      the commit's name, for a copy without git history
#
# If cuaug's library loads, the script does not install cuaug: a cuaug/_kernels.so built elsewhere from the same sources
# saves a minute per call.
set -uo pipefail

STAGES=(smoke tests sanitizer decode kernels end-to-end training memory clips dali jpeg)
USAGE="usage: benchmarks/gpu.sh OUT [WHEELS] [--stage ${STAGES[*]}] [--dry-run]"
ONLY='' DRY=0 PLACES=()
while (($#)); do
    case $1 in
        --stage) ONLY=${2:?$USAGE} && shift ;;
        --dry-run) DRY=1 ;;
        --*) echo "$1: unknown option; $USAGE" >&2 && exit 2 ;;
        *) PLACES+=("$1") ;;
    esac
    shift
done
[[ $ONLY =~ ^[1-9][0-9]?$ ]] && ONLY=${STAGES[ONLY - 1]:-$ONLY}
[[ -z $ONLY || " ${STAGES[*]} " == *" $ONLY "* ]] || { echo "--stage $ONLY: unknown; $USAGE" >&2 && exit 2; }
OUT=$(mkdir -p "${PLACES[0]:?$USAGE}" && cd "${PLACES[0]}" && pwd) || exit
WHEELS=${PLACES[1]:+$(cd "${PLACES[1]}" && pwd)}
cd "$(dirname "$0")/.." || exit
PYTHON=${PYTHON:-python3}
STAGE_SECONDS=540
LOG=$OUT/log.txt
rm -f "$OUT/failures.txt"
: >"$LOG"
TMP=$(mktemp -d)
trap 'rm -rf "$TMP"' EXIT
mkdir "$TMP/site" "$TMP/kernels"
export COLUMNS=200 # or else pytest truncates reasons
export PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HYPOTHESIS_PROFILE=ci
export PYTHONPATH=$TMP/site:$PWD${PYTHONPATH:+:$PYTHONPATH}
RUN=("$PYTHON") TEST=("$PYTHON" -m pytest) DOCTOR=0 NEEDS=0
if ((DRY)); then
    RUN+=(benchmarks/dry_run.py) TEST+=(-p tests.support.fake_gpu) DOCTOR=1 # the doctor sees that there is no GPU
    "$PYTHON" -c 'import nvidia.nvjpeg' 2>/dev/null || NEEDS=1 # only a GPU needs it
    export PATH=$PWD/tests/support/tool_stubs:$PATH CUDA_VISIBLE_DEVICES= HYPOTHESIS_PROFILE=everyday
    unset CUAUG_REQUIRE_CUDA
else
    export CUAUG_CACHE_DIR=${CUAUG_CACHE_DIR:-$TMP/kernels} CUAUG_REQUIRE_CUDA=1
fi
TEST+=(-p no:cacheprovider --continue-on-collection-errors --tb=short -r fE)
"$PYTHON" -c 'import pytest_timeout' 2>/dev/null && TEST+=(--timeout 120)
ALONE=("${TEST[@]}" -m "cuda and fills_gpu") TEST+=(-m "cuda and not fills_gpu")
WORKERS=$("$PYTHON" -c 'import os; print(max(1, min(10, len(os.sched_getaffinity(0)) - 2)))')
((DRY)) || { "$PYTHON" -c 'import xdist' 2>/dev/null && TEST+=(-n "$WORKERS"); }

STATUS=0 ROWS=()

# row NAME SECONDS STATUS [LAST]: a line of the summary.
row() {
    ROWS+=("$1"$'\t'"$2"$'\t'"$3"$'\t'"${4-}")
    [[ $3 == passed || $3 == skipped ]] || STATUS=1
}

# step NAME SECONDS EXPECTED COMMAND...: runs a command with a time limit; it passes if its exit status is EXPECTED.
step() {
    local name=$1 seconds=$2 expected=$3 left=$((END - SECONDS)) begin=$SECONDS code from
    shift 3
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
    local status="failed: exit status $code"
    ((code == expected)) && status=passed
    ((code == 0 && expected)) && status="failed: exit status 0 instead of $expected"
    ((code == 124)) && status="failed: no time left"
    row "$name" $((SECONDS - begin)) "$status" "$(tail -c "+$from" "$LOG" | tail -n 1 | tr -d '\t' | cut -c -200)"
}

# bench SECONDS SCRIPT TINY [ARGUMENT...]: a benchmark that writes OUT/SCRIPT.json; TINY has the dry run's arguments.
bench() {
    local seconds=$1 script=$2 tiny=$3
    shift 3
    # shellcheck disable=SC2086  # several arguments
    ((DRY)) && set -- "$@" $tiny
    SHOW=${SHOW:-40} step "$script" "$seconds" 0 "${RUN[@]}" "benchmarks/$script.py" "$@" --out "$OUT/$script.json"
}

# room NAME PATH...: tests of the GPU; the dry run takes a few instead, as tests/dry_run/test_fake_gpu.py runs them all.
room() {
    local name=$1 path
    shift
    for path; do [[ -e ${path#--ignore=} ]] || row "tests: $name" 0 "failed: there is no $path"; done
    ((DRY)) && set -- tests/cuda/test_arrays.py -k strides
    SHOW=5 step "tests: $name" 150 0 env CUAUG_FAILURES="$OUT/failures.txt" "${TEST[@]}" "$@"
}

# sanitizer NAME EXPECTED TOOL DRIVER TINY [ARGUMENT...]: runs a driver of tests/sanitize under a tool; TINY as for `bench`.
sanitizer() {
    local name=$1 expected=$2 tool=$3 driver=$4 tiny=$5
    shift 5
    # shellcheck disable=SC2086  # several arguments
    ((DRY)) && set -- "$@" $tiny
    step "$name" 120 "$expected" compute-sanitizer --tool "$tool" --error-exitcode 99 --print-limit 5 \
        --report-api-errors no "${RUN[@]}" -m "tests.sanitize.$driver" "$@"
}

# has_sanitizer: whether compute-sanitizer is installed; if not, the summary says so.
has_sanitizer() {
    [[ -n $(command -v compute-sanitizer) ]] && return
    row sanitizer 0 skipped "compute-sanitizer is not installed"
    return 1
}

setup() {
    SHOW=12 step "nvidia-smi" 30 0 nvidia-smi
    if [[ -n $WHEELS ]]; then
        # shellcheck disable=SC2016  # the inner shell expands it
        # If another package owns the name `nvidia`, Python finds the wheels only beside that package.
        step "install wheels" 60 0 bash -c '
            pip="$0 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade"
            $pip --target "$1" "${@:2}" && "$0" -c "import nvidia.nvimgcodec" || $pip "${@:2}"' \
            "$PYTHON" "$TMP/site" "$WHEELS"/*.whl
        WHEELS=''
    fi
    "$PYTHON" -c 'import cuaug._runtime.native' 2>/dev/null ||
        step "install cuaug" 120 0 "$PYTHON" -m pip install --no-deps --no-build-isolation --no-cache-dir -e .
    SHOW=20 step "needs" 30 $NEEDS "$PYTHON" benchmarks/gpu_needs.py
}

DATA=(--data "$TMP/photos")
stage_smoke() {
    bench 60 gpu_smoke "--files 16 --batch-size 4 --threads 2" "${DATA[@]}"
    SHOW=30 step "doctor" 150 $DOCTOR "$PYTHON" -m cuaug doctor --require-cuda
}
stage_tests() { # the lowest layer first
    room kernels tests/cuda/test_kernels.py tests/properties
    room decoder tests/cuda/test_decoding.py tests/cuda/test_jpeg.py tests/codec
    room loader tests/cuda tests/loader --ignore=tests/cuda/test_{kernels,decoding,jpeg}.py
    room rest tests --ignore=tests/cuda --ignore=tests/properties --ignore=tests/codec --ignore=tests/loader
}
stage_sanitizer() {
    local run=(sanitize_driver "--every 200" --every)
    has_sanitizer || return
    sanitizer memcheck 0 memcheck "${run[@]}" 4
    sanitizer racecheck 0 racecheck "${run[@]}" 8
    sanitizer synccheck 0 synccheck "${run[@]}" 8
    sanitizer "memcheck finds a planted mistake" 99 memcheck "${run[@]}" 40 --mistake bounds
    sanitizer "racecheck finds a planted mistake" 99 racecheck "${run[@]}" 40 --mistake race
}
stage_decode() {
    bench 300 gpu_decode "--files 16 --scale 0.002 --batch-size 8 --repetitions 1 --threads 2"
}
stage_kernels() {
    bench 240 gpu_kernels "--images 2 --copy-bytes 1000000 --flush-bytes 1000 --repetitions 1 --warm-up 0"
    bench 90 batch_augmentation "--batch-size 2 --calls 1 --repetitions 1" --device cuda
    local tiny=()
    ((DRY)) && tiny=(--files 64 --batch-size 8 --batches 5)
    # It replaces the GPU by itself, and measures this machine's CPU.
    SHOW=8 step staging 90 0 "$PYTHON" benchmarks/staging.py "${DATA[@]}" "${tiny[@]}" --out "$OUT/staging.json"
}
stage_end-to-end() {
    bench 520 gpu_end_to_end "--files 16 --batch-size 4 --threads 2 --passes 1 --epochs 1 --turns 1" "${DATA[@]}"
}
stage_training() {
    local tiny=()
    ((DRY)) && tiny=(--files 16 --batch-size 4 --threads 2 --passes 1 --repetitions 1 --steps 2 --size 32 --width 8)
    SHOW=20 step training_step 400 0 "${RUN[@]}" benchmarks/training_step.py --device cuda --threads 6 "${DATA[@]}" \
        "${tiny[@]}" --out "$OUT"
}
stage_memory() {
    ((DRY)) || local TEST=("${ALONE[@]}")
    room "full memory" tests/cuda
}
stage_clips() {
    END=$((SECONDS + 240))
    bench 200 gpu_clips "--sizes 340x256 --videos 1 --clips 4 --batch-size 2 --threads 2 --epochs 1 --repetitions 1" \
        --videos 4 --clips 32 --epochs 2 --data "$TMP/videos"
}
stage_dali() {
    if ! "$PYTHON" -c 'import nvidia.dali' 2>/dev/null; then
        row gpu_dali 0 skipped "nvidia.dali cannot be imported"
        return
    fi
    bench 240 gpu_dali "--files 16 --batch-size 4 --threads 2 --passes 1 --epochs 1 --fancy-upsampling 0" "${DATA[@]}"
}
stage_jpeg() {
    END=$((SECONDS + 240))
    bench 130 gpu_jpeg "--tiny --bits 24 --repetitions 1 --threads 2" "${DATA[@]}"
    room jpeg tests/cuda/test_jpeg.py
    local run=(sanitize_jpegs "--files 4" --files)
    has_sanitizer || return
    sanitizer "JPEG: memcheck" 0 memcheck "${run[@]}" 48
    sanitizer "JPEG: racecheck" 0 racecheck "${run[@]}" 12
    sanitizer "JPEG: memcheck finds a planted mistake" 99 memcheck "${run[@]}" 4 --mistake bounds
    sanitizer "JPEG: racecheck finds a planted mistake" 99 racecheck "${run[@]}" 4 --mistake race
}

for stage in "${STAGES[@]}"; do
    [[ -z $ONLY || $ONLY == "$stage" ]] || continue
    echo "##### $stage" | tee -a "$LOG"
    ROWS=() END=$((SECONDS + STAGE_SECONDS))
    [[ -n ${READY-} ]] || setup
    READY=1
    "stage_$stage"
    printf '%s\n' "${ROWS[@]}" | "$PYTHON" benchmarks/gpu_summary.py "$OUT" --steps "$stage" || STATUS=1
done
echo
echo "##### summary, after $SECONDS s"
"$PYTHON" benchmarks/gpu_summary.py "$OUT" | tee -a "$LOG"
((PIPESTATUS[0] == 0)) || STATUS=1
exit $STATUS
