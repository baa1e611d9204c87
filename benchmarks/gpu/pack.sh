#!/usr/bin/env bash
# `benchmarks/gpu.sh pack`: makes two archives for a Hopper machine without nvcc, Bun and npm, which gpu.sh unpacks there.
# build/carry.tar.xz has the library and its programs, for Hopper alone, and the bundled server: `first` needs only this one.
# build/carry-bun.tar.xz has Bun; it is made once for each version. Fails if both and the tree exceed 64 MiB.
set -euo pipefail
carried_bytes_max=$((64 << 20))
command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || { echo "gpu.sh: packing needs nvcc." >&2; exit 2; }
hopper=build/hopper bun=node_modules/bun/bin/bun.exe
# The filter for jumps saves a tenth of a program. The dictionary covers all programs, which have the same kernels.
pack() { tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c "${@:2}" | xz -T1 --x86 --lzma2=preset=4,dict=64MiB; }
bytes() { stat -c %s "$1"; }

# Hosts of Hopper GPUs have AVX-512, and on them only the weights' way to the GPU uses the processor.
cmake -S csrc -B $hopper -DCMAKE_BUILD_TYPE=Release -DBUNTING_CUDA_ARCHITECTURES=90a "-DBUNTING_LEVELS=portable;avx2;avx512" >/dev/null
cmake --build $hopper -j "$(nproc)" --target bunting_cpu bunting_cuda bunting_cuda_tests bunting_bench_cuda
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/build/native/cuda"
cp $hopper/libbunting_cpu.so "$stage/build/native/"
cp $hopper/cuda/{libbunting_cuda.so,bunting_cuda_tests,bunting_bench_cuda} "$stage/build/native/cuda/"
find "$stage/build" -type f -exec strip {} +
$bun build --target=bun --minify --outdir "$stage/dist" --root server server/main.ts $(find server -name worker.ts) >/dev/null
# The server starts its workers by the names of their sources.
find "$stage/dist" -name worker.js | while read -r worker; do echo 'import "./worker.js";' >"${worker%.js}.ts"; done
pack "$stage" build dist >build/carry.tar.xz

kept=build/carry-bun-$($bun --version).tar.xz
if [ ! -e "$kept" ]; then
  mkdir -p "$stage/bun/build"
  cp $bun "$stage/bun/build/bun"
  pack "$stage/bun" build >"$kept.part" && mv "$kept.part" "$kept"
fi
ln -f "$kept" build/carry-bun.tar.xz

tree=$(git ls-files -z | xargs -0 stat -c %s | awk '{sum += $1} END {print sum}')
all=$((tree + $(bytes build/carry.tar.xz) + $(bytes build/carry-bun.tar.xz)))
echo "build/carry.tar.xz: $(($(bytes build/carry.tar.xz) >> 10)) KiB, build/carry-bun.tar.xz: $(($(bytes build/carry-bun.tar.xz) >> 10)) KiB; with the tree $((all >> 20)) MiB"
[ $all -le $carried_bytes_max ] || { echo "gpu.sh: that exceeds 64 MiB." >&2; exit 1; }
