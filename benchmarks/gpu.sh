#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the CUDA engine, checks it, measures it, and prints one report in Markdown.
#
#   benchmarks/gpu.sh [--report file] [part ...]    the parts named, in this order, or all of them
#   benchmarks/gpu.sh --prepare                     only builds, for all GPUs: for use on a machine without nvcc
#   benchmarks/gpu.sh --dry-run [part ...]          prints the commands of each part, and runs those that need no GPU
#
#   build       libbunting_cuda.so, its tests and benchmarks, for this GPU
#   tests       every kernel against plain loops, and the engine against the rules of a device, on the GPU
#   memcheck, racecheck, synccheck    kernel tests under compute-sanitizer
#   kinds       every family and kind of layer on the GPU, against transformers and with chunks, company and cache
#   kernels     each kernel compared with the measured speeds of copying and of a large matrix product; mixtures of experts, heads of 256
#   serving     an 8B model of random weights through the server
#   torch       PyTorch and transformers on the same GPU
#
# Each command is limited to nine minutes ($BUNTING_STEP_SECONDS), so that every part can run as a separate short call.
# The script appends to the report when parts are named, and starts a new one otherwise. It lists the commands that cannot
# run here and skips them. The exit code is 1 if any command failed.
#
#   BUNTING_CUBLASLT    path of the library, if not where CUDA or PyTorch install it
#   BUNTING_BUN         the bun to use
#   BUNTING_GPU_MODEL   folder of an 8B model; created if missing (16 GB)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

all_parts="build tests kinds memcheck racecheck synccheck kernels serving torch"
prepare=false dry=false report=build/gpu-report.md parts=""
while [ $# -gt 0 ]; do
  case "$1" in
    --prepare) prepare=true ;;
    --dry-run) dry=true ;;
    --report) report=${2:?--report wants a file} && shift ;;
    *)
      case " $all_parts " in
        *" $1 "*) parts="$parts $1" ;;
        *) echo "gpu.sh: what is $1? The parts are: $all_parts." >&2 && exit 2 ;;
      esac
      ;;
  esac
  shift
done

built=build/native/cuda
targets="bunting_cpu bunting_cuda bunting_cuda_tests bunting_bench_cuda bunting_bench_attention_plan"
cuda=${CUDA_HOME:-/usr/local/cuda}
nvcc=$(command -v nvcc || ls "$cuda/bin/nvcc" 2>/dev/null)
bun=${BUNTING_BUN:-node_modules/.bin/bun}
limit=${BUNTING_STEP_SECONDS:-540}
failed=0
mkdir -p "$built" "$(dirname "$report")" || exit 2
[ -n "$parts" ] || : >"$report" || exit 2

wanted() { [ -z "$parts" ] || [[ " $parts " == *" $1 "* ]]; }
say() { printf '%s\n' "$*" | tee -a "$report"; }
left_out() { say "Left out: $*" && say ""; }

# step "title" command...: runs it, writes its output into the report, and continues even if it fails.
step() {
  local title=$1 log code started=$SECONDS
  shift
  say "## $title" && say ""
  if $dry; then
    say "Would run: $*" && say ""
    return 0
  fi
  log=$(mktemp)
  timeout -k 10 "$limit" "$@" >"$log" 2>&1
  code=$?
  if [ $code -eq 0 ]; then
    tee -a "$report" <"$log"
  else
    failed=1
    say '```text'
    tail -n 40 "$log" | tee -a "$report"
    say '```'
    say ""
    [ $code -eq 124 ] && say "**Failed**: not done after $limit seconds." || say "**Failed**: exit code $code."
  fi
  rm -f "$log"
  say ""
  say "($((SECONDS - started)) s)" && say ""
  return $code
}

# Reports only the last line of a command's output, unless it fails.
last_line='log=$(mktemp); "$@" >"$log" 2>&1; code=$?; [ $code -eq 0 ] && tail -n 1 "$log" || tail -n 40 "$log"; rm -f "$log"; exit $code'
brief() { if $dry; then step "$@"; else step "$1" bash -c "$last_line" gpu.sh "${@:2}"; fi; }

compile='
  cmake -S csrc -B build/native -DCMAKE_BUILD_TYPE=Release "-DBUNTING_CUDA_ARCHITECTURES=$1" >build/native/gpu-build.log 2>&1 &&
    cmake --build build/native -j "$(nproc)" --target $2 >>build/native/gpu-build.log 2>&1 ||
    { tail -n 30 build/native/gpu-build.log; exit 1; }
  ls -l build/native/cuda/libbunting_cuda.so | awk "{printf \"libbunting_cuda.so, %.1f MB\\n\", \$5 / 1e6}"'
build_for() {
  if $dry; then step "Build for $1" cmake --build build/native --target $targets; else
    step "Build for $1" bash -c "$compile" gpu.sh "$1" "$targets"
  fi
}

if $prepare; then
  [ -n "$nvcc" ] || { echo "gpu.sh: --prepare needs nvcc." >&2; exit 2; }
  limit=3600
  build_for "80;86;89;90a;100;120"
  exit $failed
fi

if $dry; then
  gpu="no GPU, 0, 9.0, 0, 0"
else
  if ! gpu=$(nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm --format=csv,noheader 2>&1); then
    echo "gpu.sh: there is no NVIDIA GPU here: $gpu" >&2
    exit 2
  fi
  gpu=$(echo "$gpu" | head -n 1)
fi
say "# The CUDA engine on ${gpu%%,*}"
say ""
say "$(date -u +%F), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown). GPU, driver, capability, memory, clock: $gpu."
say ""

if wanted build; then
  capability=$(echo "$gpu" | cut -d, -f3 | tr -d ' .')
  [ "$capability" = 90 ] && capability=90a
  if [ -n "$nvcc" ]; then
    build_for "$capability"
  else
    left_out "the build, for want of nvcc: what is in $built was built elsewhere."
  fi
fi
for file in libbunting_cuda.so bunting_cuda_tests bunting_bench_cuda; do
  [ -e "$built/$file" ] || $dry || { echo "gpu.sh: $built/$file is missing: run benchmarks/gpu.sh --prepare where nvcc is." >&2; exit 1; }
done

if wanted tests; then
  brief "Kernels against plain loops, on the GPU" $built/bunting_cuda_tests
  # Tests of these files with the GPU's name; the emulated GPU need not be built.
  rules="tests/device/gpu.conformance.test.ts tests/device/gpu.test.ts tests/device/correctness.test.ts"
  ls $rules >/dev/null || exit 2
  if [ -x "$bun" ]; then
    brief "The engine against the rules of a device and against transformers" \
      env BUNTING_EMULATED_LIBRARY="$PWD/$built/libbunting_cuda.so" "$bun" test $rules -t cuda
  else
    left_out "the engine against the rules of a device and against transformers: there is no $bun (npm ci)."
  fi
fi

if wanted kinds; then
  kinds="tests/device/families.test.ts tests/device/kinds.test.ts"
  ls $kinds >/dev/null || exit 2
  if [ -x "$bun" ]; then
    brief "Every family and kind of layer" \
      env BUNTING_EMULATED_LIBRARY="$PWD/$built/libbunting_cuda.so" "$bun" test $kinds -t "on cuda"
  else
    left_out "every family and kind of layer: there is no $bun (npm ci)."
  fi
fi

sanitizer=$(command -v compute-sanitizer || ls "$cuda/bin/compute-sanitizer" 2>/dev/null)
for tool in memcheck racecheck synccheck; do
  wanted $tool || continue
  if [ -n "$sanitizer" ] || $dry; then
    brief "compute-sanitizer --tool $tool" "${sanitizer:-compute-sanitizer}" --tool $tool --error-exitcode 9 \
      $built/bunting_cuda_tests cuda_
  else
    left_out "$tool: there is no compute-sanitizer."
  fi
done

if wanted kernels; then
  # Uses PyTorch's own cuBLASLt if CUDA's is not installed.
  cublaslt=${BUNTING_CUBLASLT:-$(python3 -c 'import glob, site
paths = [p for s in site.getsitepackages() for p in glob.glob(s + "/nvidia/*/lib/libcublasLt.so.1[23]")]
print(paths[-1] if paths else "")' 2>/dev/null)}
  ls "$cuda"/lib64/libcublasLt.so.1[23] >/dev/null 2>&1 && cublaslt=${BUNTING_CUBLASLT:-}
  step "Kernels" $built/bunting_bench_cuda "$cublaslt"
  if [ -x $built/bunting_bench_attention_plan ]; then
    planning=$dry && dry=false # needs no GPU
    step "Planning attention, on the CPU" $built/bunting_bench_attention_plan
    dry=$planning
  fi
fi

model=${BUNTING_GPU_MODEL:-build/gpu-model}
if wanted serving; then
  if [ ! -x "$bun" ]; then
    left_out "an 8B model through the server: there is no $bun (npm ci)."
  else
    if [ ! -e "$model/config.json" ]; then
      [ "$model" = build/gpu-model ] && ! $dry && rm -rf build/gpu-model # of a run that was cut off
      brief "An 8B model of random weights" "$bun" tools/random-model.ts Llama-3.1-8B "$model"
    fi
    copying=$(sed -n 's/.*Copying: \([0-9.]*\) TB.*/\1/p' "$report" | tail -n 1)
    if [ -e "$model/config.json" ] || $dry; then
      step "8B, through the server" "$bun" benchmarks/gpu-serving.ts "$model" "$copying"
    fi
  fi
fi

if wanted torch; then
  if $dry || python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    step "PyTorch on the same GPU: products" python3 benchmarks/gpu-torch.py
    if $dry || { [ -e "$model/config.json" ] && python3 -c 'import transformers' 2>/dev/null; }; then
      step "transformers on the same GPU" python3 benchmarks/gpu-torch.py "$model"
    else
      left_out "transformers: it is not installed, or there is no 8B model at $model."
    fi
  else
    left_out "PyTorch: python3 has no torch that sees the GPU."
  fi
fi
say "$([ $failed -eq 0 ] && echo 'Nothing failed.' || echo '**Something failed**, see above.')"
exit $failed
