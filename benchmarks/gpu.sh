#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the CUDA engine, checks it, measures it, and prints one report in Markdown.
#
#   benchmarks/gpu.sh [--quick] [--report file]    everything; what cannot run here is said and left out
#   benchmarks/gpu.sh --prepare                    only builds, for all GPUs: for a machine that has no nvcc
#
# Without nvcc it takes what is in build/native/cuda, as --prepare on another machine has left it there. --quick leaves out
# the sanitizers and the 8B model. The exit code is 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/.."

quick=false prepare=false report=build/gpu-report.md
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=true ;;
    --prepare) prepare=true ;;
    --report) report=${2:?--report wants a file} && shift ;;
    *) echo "gpu.sh: what is $1? See the head of the script." >&2 && exit 2 ;;
  esac
  shift
done

built=build/native/cuda
targets="bunting_cpu bunting_cuda bunting_cuda_tests bunting_bench_cuda bunting_bench_attention_plan"
nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" 2>/dev/null)
bun=node_modules/.bin/bun
failed=0
mkdir -p "$(dirname "$report")"
: >"$report"

say() { printf '%s\n' "$*" | tee -a "$report"; }
left_out() { say "Left out: $*" && say ""; }

# step "title" seconds command...: runs it, its output into the report, and goes on whatever becomes of it.
step() {
  local title=$1 limit=$2 log code
  shift 2
  say "## $title" && say ""
  log=$(mktemp)
  timeout "$limit" "$@" >"$log" 2>&1
  code=$?
  if [ $code -eq 0 ]; then
    cat "$log" | tee -a "$report"
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
}

# The last lines of a command's output are enough.
last_line() { "$@" >"$built/last.log" 2>&1 || { tail -n 30 "$built/last.log"; return 1; }; tail -n 1 "$built/last.log"; }

build() {
  cmake -S csrc -B build/native -DCMAKE_BUILD_TYPE=Release "$@" >/dev/null &&
    # shellcheck disable=SC2086
    cmake --build build/native -j "$(nproc)" --target $targets >"build/native/gpu-build.log" 2>&1 ||
    { tail -n 30 build/native/gpu-build.log; return 1; }
  ls -l $built/libbunting_cuda.so | awk '{printf "libbunting_cuda.so, %.1f MB\n", $5 / 1e6}'
}

all_gpus="80;86;89;90a;100;120"
if $prepare; then
  [ -n "$nvcc" ] || { echo "gpu.sh: --prepare needs nvcc." >&2; exit 2; }
  step "Build for all GPUs" 3600 build "-DBUNTING_CUDA_ARCHITECTURES=$all_gpus"
  exit $failed
fi

gpu=$(nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm --format=csv,noheader 2>&1)
if [ $? -ne 0 ]; then
  echo "gpu.sh: there is no NVIDIA GPU here: $gpu" >&2
  exit 2
fi
say "# The CUDA engine on $(echo "$gpu" | head -n 1 | cut -d, -f1)"
say ""
say "$(date -u +%F), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown). GPU, driver, capability, memory, clock: $(echo "$gpu" | head -n 1)."
say ""

if [ -n "$nvcc" ]; then
  capability=$(echo "$gpu" | head -n 1 | cut -d, -f3 | tr -d ' .')
  [ "$capability" = 90 ] && capability=90a
  step "Build" 1800 build "-DBUNTING_CUDA_ARCHITECTURES=$capability"
else
  left_out "the build, for want of nvcc: what is in $built was built elsewhere."
fi
for file in libbunting_cuda.so bunting_cuda_tests bunting_bench_cuda; do
  [ -e "$built/$file" ] || { echo "gpu.sh: $built/$file is missing: run benchmarks/gpu.sh --prepare where nvcc is." >&2; exit 1; }
done

step "Kernels against plain loops, on the GPU" 900 last_line $built/bunting_cuda_tests
if [ -x $bun ]; then
  step "The engine against the rules of a device" 600 last_line \
    env BUNTING_EMULATED_LIBRARY="$PWD/$built/libbunting_cuda.so" $bun test tests/device/emulated.conformance.test.ts
else
  left_out "the engine against the rules of a device: there is no $bun (npm ci)."
fi

sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
if $quick; then
  left_out "the sanitizers (--quick)."
elif [ -z "$sanitizer" ]; then
  left_out "the sanitizers: there is no compute-sanitizer."
else
  for tool in memcheck racecheck synccheck; do
    step "compute-sanitizer --tool $tool" 1800 last_line \
      "$sanitizer" --tool $tool --error-exitcode 1 $built/bunting_cuda_tests gemm attention rope rows sample
  done
fi

step "Kernels" 600 $built/bunting_bench_cuda "${BUNTING_CUBLASLT:-}"
[ -e $built/bunting_bench_attention_plan ] && step "Planning attention, on the CPU" 60 $built/bunting_bench_attention_plan

model=${BUNTING_GPU_MODEL:-build/gpu-model}
if $quick; then
  left_out "an 8B model through the server (--quick)."
elif [ ! -x $bun ]; then
  left_out "an 8B model through the server: there is no $bun (npm ci)."
else
  [ -e "$model/config.json" ] || step "An 8B model of random weights" 1800 last_line $bun tools/random-model.ts Llama-3.1-8B "$model"
  [ -e "$model/config.json" ] && step "8B, through the server" 1800 $bun benchmarks/gpu-serving.ts "$model" \
    "$(sed -n 's/.*Copying: \([0-9.]*\) TB.*/\1/p' "$report" | head -n 1)"
fi

if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step "PyTorch on the same GPU" 900 python3 benchmarks/gpu-torch.py "$([ -e "$model/config.json" ] && ! $quick && echo "$model")"
else
  left_out "PyTorch: python3 has no torch that sees the GPU."
fi
say "$([ $failed -eq 0 ] && echo 'Nothing failed.' || echo '**Something failed**, see above.')"
exit $failed
