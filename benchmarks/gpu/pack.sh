#!/usr/bin/env bash
# `benchmarks/gpu.sh pack`: builds the library and its programs for Hopper alone, bundles the server, and packs them with
# Bun into build/carry.tar.xz for a machine without nvcc, Bun and npm. Fails if the archive and the tree exceed 64 MiB.
set -euo pipefail
carried_bytes_max=$((64 << 20))
command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || { echo "gpu.sh: packing needs nvcc." >&2; exit 2; }
hopper=build/hopper bun=node_modules/bun/bin/bun.exe
cmake -S csrc -B $hopper -DCMAKE_BUILD_TYPE=Release -DBUNTING_CUDA_ARCHITECTURES=90a >/dev/null
cmake --build $hopper -j "$(nproc)" --target bunting_cpu bunting_cuda bunting_cuda_tests bunting_bench_cuda
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/build/native/cuda"
cp $hopper/libbunting_cpu.so "$stage/build/native/"
cp $hopper/cuda/{libbunting_cuda.so,bunting_cuda_tests,bunting_bench_cuda} "$stage/build/native/cuda/"
cp $bun "$stage/build/bun"
find "$stage/build" -type f ! -name bun -exec strip {} +
$bun build --target=bun --minify --outdir "$stage/dist" --root server server/main.ts $(find server -name worker.ts) >/dev/null
# The server starts its workers by the names of their sources.
find "$stage/dist" -name worker.js | while read -r worker; do echo 'import "./worker.js";' >"${worker%.js}.ts"; done
tar -C "$stage" -c build dist | xz -9 -T0 >build/carry.tar.xz
tree=$(git ls-files -z | xargs -0 stat -c %s | awk '{sum += $1} END {print sum}')
carried=$(stat -c %s build/carry.tar.xz)
echo "build/carry.tar.xz: $((carried >> 20)) MiB; with the tree $(((carried + tree) >> 20)) MiB"
[ $((carried + tree)) -le $carried_bytes_max ] || { echo "gpu.sh: that exceeds 64 MiB." >&2; exit 1; }
