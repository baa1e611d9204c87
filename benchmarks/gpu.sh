#!/usr/bin/env bash
# First contact with an NVIDIA GPU, as a ladder of rungs within a time budget. A rung is a command in a process of its own
# with its own limit: one that fails, crashes or hangs loses only itself. Results are written as they come.
#
#   benchmarks/gpu.sh first [folder]     builds or unpacks, tests, kernels' times, bits, a fault and a hang: 8 minutes
#   benchmarks/gpu.sh second [folder]    sanitizers, profiles, conformance, a chat, PyTorch beside it: 5 minutes
#   benchmarks/gpu.sh whole [folder]     every family and kind of layer, an 8B model through the server: no limit
#   benchmarks/gpu.sh pack               where nvcc is: builds for Hopper and writes two archives for a bare machine:
#                                        build/carry.tar.xz for all calls, build/carry-bun.tar.xz for `second`
#
# `folder` (build/gpu, or $OUT) receives at most eight files: results.jsonl with all numbers and how every rung ended,
# log.txt, and others that rungs write. `bun benchmarks/gpu-table.ts folder` makes the table of docs/gpu.md of them.
#
#   BUNTING_LADDER_SECONDS     another budget
#   BUNTING_LADDER_RUNGS       another file of rungs than benchmarks/gpu/<first|second|whole>.rungs
#   BUNTING_LADDER_EMULATED=1  the emulated GPU, in tiny shapes: shows that the ladder works
#   BUNTING_LADDER_TESTS       words of the tests to run; all by default
#   BUNTING_LADDER_CONFORMANCE words of the rules of a device to check; all by default
#   BUNTING_LADDER_GROUPS      tests of tests/device that `whole` runs: gpu correctness families kinds
#   BUNTING_LADDER_MODEL       shape or folder of the model of the chat (Llama-3.2-1B) or of `whole` (Llama-3.1-8B)
#   BUNTING_CUBLASLT           path of the library, if it is not found by name
#   CUDA_HOME                  folder of nvcc and the sanitizers, if not /usr/local/cuda
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

which=${1:-} model=Llama-3.2-1B
case "$which" in
  first) budget=480 ;;
  second) budget=300 ;;
  whole) budget=7200 model=Llama-3.1-8B ;;
  pack) exec bash benchmarks/gpu/pack.sh ;;
  *) echo "gpu.sh: wanted first, second, whole or pack, not '$which'." >&2 && exit 2 ;;
esac
budget=${BUNTING_LADDER_SECONDS:-$budget}
rungs=${BUNTING_LADDER_RUNGS:-benchmarks/gpu/$which.rungs}
out=${2:-${OUT:-build/gpu}}
[ -r "$rungs" ] && mkdir -p "$out" || { echo "gpu.sh: there is no $rungs, or no folder $out." >&2; exit 2; }
out=$(cd "$out" && pwd)
results=$out/results.jsonl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log_bytes_max=200000 # of a rung

export out work
export native=$PWD/build/native carry=build/carry.tar.xz carry_bun=build/carry-bun.tar.xz
export cuda=${CUDA_HOME:-/usr/local/cuda}
export PATH=$PATH:$cuda/bin
export cublaslt=${BUNTING_CUBLASLT:-}
export BUNTING_LADDER_CONFORMANCE=${BUNTING_LADDER_CONFORMANCE:-}
export BUNTING_LADDER_GROUPS=${BUNTING_LADDER_GROUPS:-gpu correctness families kinds}
export BUNTING_LADDER_MODEL=${BUNTING_LADDER_MODEL:-$model}
export BUNTING_LADDER_TESTS=${BUNTING_LADDER_TESTS:-}
patience=1 # multiplies the limits of rungs
if [ -n "${BUNTING_LADDER_EMULATED:-}" ]; then
  patience=10
  export tests=$native/cuda/bunting_emulator_tests bench=$native/cuda/bunting_bench_emulated
  export library=$native/cuda/libbunting_emu.so device=emu tiny=--tiny
else
  export tests=$native/cuda/bunting_cuda_tests bench=$native/cuda/bunting_bench_cuda
  export library=$native/cuda/libbunting_cuda.so device=cuda:0 tiny=
fi
if [ -x build/bun ] || [ -e "$carry_bun" ]; then bun=$PWD/build/bun; else bun=$PWD/node_modules/.bin/bun; fi
export bun=${BUNTING_BUN:-$bun}

# ---- helpers of rungs ----------------------------------------------------------------------------------------------------

# Ends the rung as left out.
leave_out() { echo "Left out: $*" && exit 77; }
need() { command -v "$1" >/dev/null || leave_out "there is no $1."; }
# Uses what the archives of `pack` bring, or what is built, or builds for this GPU.
build_where_needed() {
  if [ -e "$carry" ] && [ ! -x "$bench" ]; then tar -xJf "$carry" || return 1; fi
  if [ -e "$carry_bun" ] && [ ! -x "$bun" ]; then tar -xJf "$carry_bun" || return 1; fi
  if [ -x "$bench" ] && "$bench" probe; then return 0; fi
  need nvcc && need cmake
  local make=() capability
  command -v make >/dev/null || make=(-G Ninja)
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d ' .')
  [ "$capability" = 90 ] && capability=90a
  rm -rf "$native/CMakeCache.txt" "$native/CMakeFiles"
  cmake -S csrc -B "$native" "${make[@]}" -DCMAKE_BUILD_TYPE=Release "-DBUNTING_CUDA_ARCHITECTURES=$capability" &&
    cmake --build "$native" -j "$(nproc)" --target bunting_cuda bunting_cuda_tests bunting_bench_cuda
}
# Speed of copying in TB/s, as a rung before has measured it.
copying() { sed -n 's/.*"ceiling":"copy","per_second":\([0-9]*\).*/\1/p' "$out/results.jsonl" | awk '{tbps = $1 / 1e12} END {print tbps}'; }
formats() { printf '%s\n' bf16 int8 int8_32 int4 fp8 mxfp4; }
# Shards that together launch every kernel; each is small enough for a sanitizer.
tiny_shards() { printf '%s\n' rows few=bf16 few=int4 few=mxfp4 many=bf16 many=int4 attention=engine experts=int4; }
sanitize() {
  need compute-sanitizer
  compute-sanitizer --tool "$1" --error-exitcode 9 "$bench" --tiny "${@:2}"
}
profiles() { printf '%s\n' gemm_few:few=bf16 gemm_few:few=int4 gemm_many:many=bf16 gemm_many:many=int4 attention:attention=engine sample:rows; }
# Adds one launch of a kernel, from within a graph, to ncu.csv.
profile() {
  need ncu
  ncu --clock-control none --set full --csv --page raw --kernel-name "regex:${1%%:*}" --launch-skip 4 --launch-count 1 \
    --kill yes "$bench" "${1#*:}" >>"$out/ncu.csv"
}
# Prints the folder of the model of `whole`, made once.
serving_model() {
  local folder=build/gpu-model/$BUNTING_LADDER_MODEL
  [ ! -d "$BUNTING_LADDER_MODEL" ] || { echo "$BUNTING_LADDER_MODEL" && return; }
  [ -e "$folder/config.json" ] || { rm -rf "$folder" && "$bun" tools/random-model.ts "$BUNTING_LADDER_MODEL" "$folder" >&2; } || return 1
  echo "$folder"
}
# One chat with a model of the given shape, or in the given folder, through the server.
chat() {
  local model=$1 server=server/main.ts
  [ -e dist/main.js ] && server=dist/main.js
  if [ ! -d "$model" ]; then
    "$bun" tools/random-model.ts "$model" "$work/model" || return 1
    model=$work/model
  fi
  "$bun" benchmarks/gpu/chat.ts "$server" "$model" "$device"
}
export -f leave_out need build_where_needed copying formats tiny_shards sanitize profiles profile serving_model chat

# ---- the ladder ------------------------------------------------------------------------------------------------------------

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
begin_ms=$(now_ms)
left_ms() { echo $((budget * 1000 - $(now_ms) + begin_ms)); }

# run_rung name limit command: runs it and leaves its line, its own JSON and its log. A process that cannot be killed is left
# behind.
run_rung() {
  local name=$1 limit_ms=$(($2 * patience * 1000)) log=$work/log code ended start json=$work/json left fd
  left=$(left_ms)
  if [ "$left" -lt 2000 ]; then
    printf '{"rung":"%s","ended":"left out","why":"no time is left"}\n' "$name" >>"$results"
    return
  fi
  [ "$limit_ms" -gt $((left - 1000)) ] && limit_ms=$((left - 1000))
  start=$(now_ms)
  : >"$log"
  exec {fd}< <(timeout -k 1 "$((limit_ms / 1000)).$(printf %03d $((limit_ms % 1000)))" bash -c "$3" >"$log" 2>&1 </dev/null; echo $?)
  IFS= read -r -t $((limit_ms / 1000 + 3)) -u "$fd" code || code=124
  exec {fd}<&-
  case "$code" in
    0) ended=ok ;;
    77) ended="left out" ;;
    124 | 137) ended="timed out" ;;
    12[89] | 1[3-9]? | 2??) ended=crashed ;;
    *) ended=failed ;;
  esac
  [ "$ended" = ok ] || [ "$ended" = "left out" ] || failed=1
  printf '{"rung":"%s","ended":"%s","code":%d,"seconds":%d.%03d}\n' "$name" "$ended" "$code" \
    $((($(now_ms) - start) / 1000)) $((($(now_ms) - start) % 1000)) >>"$results"
  grep -a '^{.*}$' "$log" >>"$results"
  { echo "== $name: $ended ($code)"; grep -av '^{.*}$' "$log" | tail -c "$log_bytes_max"; } >>"$out/log.txt"
  echo "$ended: $name"
}

failed=0
trim() { local text=$*; text=${text#"${text%%[![:space:]]*}"} && printf %s "${text%"${text##*[![:space:]]}"}"; }
printf '{"ladder":"%s","date":"%s","commit":"%s","budget_seconds":%d}\n' "$which" "$(date -u +%F)" \
  "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$budget" >>"$results"
while IFS= read -r line || [ -n "$line" ]; do
  case "$line" in '' | '#'*) continue ;; esac
  name=$(trim "${line%%::*}") && line=${line#*::}
  limit=$(trim "${line%%::*}") && line=${line#*::}
  command=${line%%::*} && line=${line#"$command"}
  list=$(trim "${line#::}")
  if [ -z "$list" ]; then
    run_rung "$name" "$limit" "$command"
    continue
  fi
  mapfile -t arguments < <(timeout 20 bash -c "$list" </dev/null 2>>"$out/log.txt")
  [ ${#arguments[@]} -gt 0 ] || printf '{"rung":"%s","ended":"left out","why":"it has no arguments"}\n' "$name" >>"$results"
  for argument in "${arguments[@]}"; do
    run_rung "${name//\{\}/$argument}" "$limit" "${command//\{\}/$argument}"
  done
done <"$rungs"
printf '{"ladder":"%s","seconds":%d}\n' "$which" $((($(now_ms) - begin_ms) / 1000)) >>"$results"
tail -c 15000000 "$out/log.txt" >"$work/tail" && cp "$work/tail" "$out/log.txt"
exit $failed
