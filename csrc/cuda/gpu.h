// gpu.h - all GPU primitives that kernels use, and the only file that may use them directly.
//
// Under nvcc each primitive is an instruction (PTX ISA 8.0, sm_80 and newer). Under any other compiler it is
// a call into the emulator (emulator/grid.h). The emulator runs the same kernel sources on a CPU and reports
// errors that a GPU would not detect.
//
// A kernel is `GPU_KERNEL(threads, blocks_per_multiprocessor) name(Arguments const a)` with one argument of
// plain data; runtime.h launches it. Blocks have a multiple of 32 threads. Shared memory is one array,
// divided with Shared<T>. Kernels access global memory only through load() and store(), where the emulator
// checks it, never through a pointer directly. Whole warps call warp operations, from control flow that is
// the same in all lanes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define GPU_DEVICE __device__ __forceinline__
#define GPU_KERNEL(threads, blocks_per_multiprocessor) \
  __global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
#define GPU_UNROLL _Pragma("unroll")
#define GPU_UNROLL_BY_FOUR _Pragma("unroll 4")
#define GPU_KEEP_LOOP _Pragma("unroll 1")
#define GPU_LINE 0
#else
#include "emulator/device_memory.h"
#include "emulator/grid.h"
#include "emulator/warp_operations.h"
#define GPU_DEVICE inline
#define GPU_KERNEL(threads, blocks_per_multiprocessor) void
#define GPU_UNROLL
#define GPU_UNROLL_BY_FOUR
#define GPU_KEEP_LOOP
#define GPU_LINE __builtin_LINE()
#endif

namespace bunting::gpu {

using bf16 = uint16_t;

// Sixteen bytes, the widest access.
struct alignas(16) Vec {
  uint32_t word[4];
};

inline constexpr int kWarp = 32;

// ---- indices -------------------------------------------------------------------------------------------

GPU_DEVICE int thread_index() {
#if defined(__CUDACC__)
  return int(threadIdx.x);
#else
  return emulator::self().thread;
#endif
}

GPU_DEVICE int thread_count() {
#if defined(__CUDACC__)
  return int(blockDim.x);
#else
  return emulator::self().threads;
#endif
}

GPU_DEVICE int block_index() {
#if defined(__CUDACC__)
  return int(blockIdx.x);
#else
  return emulator::self().block;
#endif
}

GPU_DEVICE int block_count() {
#if defined(__CUDACC__)
  return int(gridDim.x);
#else
  return emulator::self().blocks;
#endif
}

GPU_DEVICE int lane() {
  return thread_index() % kWarp;
}
GPU_DEVICE int warp() {
  return thread_index() / kWarp;
}

// ---- barriers ---------------------------------------------------------------------------------------------

// Barrier for all threads of the block; writes before it are visible after it.
GPU_DEVICE void block_sync([[maybe_unused]] int line = GPU_LINE) {
#if defined(__CUDACC__)
  __syncthreads();
#else
  emulator::block_barrier(line);
#endif
}

// Barrier for all lanes of the warp; writes before it are visible after it.
GPU_DEVICE void warp_sync([[maybe_unused]] int line = GPU_LINE) {
#if defined(__CUDACC__)
  __syncwarp();
#else
  emulator::warp_barrier(line);
#endif
}

// ---- exchange between the lanes of a warp; these order no memory ------------------------------------------

// Returns the value of x in lane `source`. T has four bytes.
template <class T>
GPU_DEVICE T shuffle(T x, int source) {
  static_assert(sizeof(T) == 4);
#if defined(__CUDACC__)
  return __shfl_sync(0xffffffffu, x, source);
#else
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = emulator::shuffle(bits, source);
  std::memcpy(&x, &bits, sizeof bits);
  return x;
#endif
}

// Returns the value of x in lane `lane() ^ mask`.
template <class T>
GPU_DEVICE T shuffle_xor(T x, int mask) {
#if defined(__CUDACC__)
  static_assert(sizeof(T) == 4);
  return __shfl_xor_sync(0xffffffffu, x, mask);
#else
  return shuffle(x, lane() ^ mask);
#endif
}

// Returns a word whose bit i is lane i's `yes`.
GPU_DEVICE uint32_t ballot(bool yes) {
#if defined(__CUDACC__)
  return __ballot_sync(0xffffffffu, yes);
#else
  return emulator::ballot(yes);
#endif
}

// Returns in every lane the sum over its aligned group of `width` lanes, added in one fixed order.
GPU_DEVICE float warp_sum(float x, int width = kWarp) {
  for (int mask = width / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

// ---- global memory --------------------------------------------------------------------------------------

template <class T>
GPU_DEVICE T load(T const* at) {
#if !defined(__CUDACC__)
  emulator::check_load(at, sizeof(T), alignof(T), "load");
#endif
  return *at;
}

template <class T>
GPU_DEVICE void store(T* at, T value) {
#if !defined(__CUDACC__)
  emulator::check_store(at, sizeof(T), alignof(T), "store");
#endif
  *at = value;
}

// Loads weights, which one block reads once and nobody writes while kernels run. Does not displace other
// lines in L1.
GPU_DEVICE Vec load_once(Vec const* at) {
#if defined(__CUDACC__)
  Vec v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(at));
  return v;
#else
  return load(at);
#endif
}

// Adds and returns the old value, with acquire and release. Writes that this thread made or saw before are
// visible to the thread whose addition follows. Blocks pass results to each other in this way.
GPU_DEVICE int32_t add_acquire_release(int32_t* at, int32_t amount) {
#if defined(__CUDACC__)
  int32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(amount) : "memory");
  return old;
#else
  emulator::check_atomic(at, sizeof *at, alignof(int32_t), "atomic addition");
  emulator::hand_over();
  return __atomic_fetch_add(at, amount, __ATOMIC_ACQ_REL);
#endif
}

// ---- shared memory --------------------------------------------------------------------------------------

#if defined(__CUDACC__)
GPU_DEVICE char* shared_base() {
  extern __shared__ __align__(128) char bunting_shared[];
  return bunting_shared;
}
#endif

// Array in the block's shared memory, from byte address `at` on. Offsets are in elements.
template <class T>
struct Shared {
  uint32_t at = 0;

  GPU_DEVICE Shared operator+(int offset) const { return {at + uint32_t(offset) * uint32_t(sizeof(T))}; }
  template <class U>
  GPU_DEVICE Shared<U> as() const {
    return {at};
  }
  GPU_DEVICE T get(int index) const {
    uint32_t const address = (*this + index).at;
#if defined(__CUDACC__)
    return *reinterpret_cast<T const*>(shared_base() + address);
#else
    emulator::shared_memory().read(address, sizeof(T), emulator::access_by_self("load"));
    return *reinterpret_cast<T const*>(emulator::shared_memory().data() + address);
#endif
  }
  GPU_DEVICE void set(int index, T value) const {
    uint32_t const address = (*this + index).at;
#if defined(__CUDACC__)
    *reinterpret_cast<T*>(shared_base() + address) = value;
#else
    emulator::shared_memory().write(address, sizeof(T), emulator::access_by_self("store"));
    *reinterpret_cast<T*>(emulator::shared_memory().data() + address) = value;
#endif
  }
  // Adds atomically without ordering memory. Only for integers, whose sum does not depend on the order.
  GPU_DEVICE T add(int index, T amount) const {
    static_assert(T(1) / T(2) == T(0), "sums of floats depend on their order");
    uint32_t const address = (*this + index).at;
#if defined(__CUDACC__)
    return atomicAdd(reinterpret_cast<T*>(shared_base() + address), amount);
#else
    emulator::shared_memory().update(address, sizeof(T), emulator::access_by_self("atomic addition"));
    return __atomic_fetch_add(reinterpret_cast<T*>(emulator::shared_memory().data() + address), amount,
                              __ATOMIC_RELAXED);
#endif
  }
};

// ---- asynchronous copies, sm_80 -------------------------------------------------------------------------

#if !defined(__CUDACC__)
// Starts a copy; its destination is NaN until the copy is waited for.
template <class T>
void begin_emulated_copy(Shared<T> wanted_to, T const* from, bool wanted, int line) {
  if (wanted) emulator::check_load(from, sizeof(T), alignof(T), "cp.async");
  uint32_t const to = emulator::copy_destination(wanted_to.at, line);
  emulator::shared_memory().copy_begins(to, sizeof(T), emulator::access_by_self("cp.async"));
  std::memset(emulator::shared_memory().data() + to, 0xff, sizeof(T));
  emulator::begin_copy(to, wanted ? from : nullptr, sizeof(T));
}
#endif

// Starts a copy of sixteen bytes from global memory, or of sixteen zeros unless `wanted` (then `from` is not
// read). The copy belongs to the group that this thread's next copy_commit() closes.
GPU_DEVICE void copy_async(Shared<Vec> to, Vec const* from, bool wanted,
                           [[maybe_unused]] int line = GPU_LINE) {
#if defined(__CUDACC__)
  uint32_t const address = uint32_t(__cvta_generic_to_shared(shared_base())) + to.at;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
#else
  begin_emulated_copy(to, from, wanted, line);
#endif
}

// Does the same with four bytes.
GPU_DEVICE void copy_async(Shared<uint32_t> to, uint32_t const* from, bool wanted,
                           [[maybe_unused]] int line = GPU_LINE) {
#if defined(__CUDACC__)
  uint32_t const address = uint32_t(__cvta_generic_to_shared(shared_base())) + to.at;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(wanted ? 4 : 0)
               : "memory");
#else
  begin_emulated_copy(to, from, wanted, line);
#endif
}

GPU_DEVICE void copy_commit() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulator::commit_copies();
#endif
}

// Waits until at most kGroups of this thread's groups are in flight: those committed last. Other threads see
// the copies after a barrier.
template <int kGroups>
GPU_DEVICE void copy_wait([[maybe_unused]] int line = GPU_LINE) {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#else
  while (emulator::AsyncCopy const* copy = emulator::next_copy_to_finish(kGroups, line)) {
    emulator::shared_memory().copy_ends(copy->to, copy->bytes, emulator::access_by_self("cp.async"));
    char* const to = emulator::shared_memory().data() + copy->to;
    if (copy->from)
      std::memcpy(to, copy->from, copy->bytes);
    else
      std::memset(to, 0, copy->bytes);
  }
#endif
}

// ---- matrices, sm_80 ------------------------------------------------------------------------------------

// Loads four 8x8 matrices of 16-bit elements. Lane 8*m + r passes the address of row r of matrix m (16
// bytes). Word m of lane l receives elements (l/4, 2*(l%4)) and (l/4, 2*(l%4) + 1) of matrix m, or of its
// transpose.
template <bool kTransposed>
GPU_DEVICE Vec load_matrices(Shared<Vec> row) {
#if defined(__CUDACC__)
  Vec v;
  uint32_t const address = uint32_t(__cvta_generic_to_shared(shared_base())) + row.at;
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(address)
                 : "memory");
  return v;
#else
  Vec v, out;
  emulator::shared_memory().read(row.at, sizeof(Vec), emulator::access_by_self("ldmatrix"));
  std::memcpy(&v, emulator::shared_memory().data() + row.at, sizeof v);
  emulator::load_matrices(v.word, kTransposed, out.word);
  return out;
#endif
}

// Computes d += a * b with a [16, 16] and b [16, 8] in bf16 and d [16, 8] in f32. With g = lane/4, t = lane%4
// a lane holds
//
//   a  rows g and g+8 at columns 2t, 2t+1, then the same rows at columns 2t+8, 2t+9: a word per row and pair
//   b  column g at rows 2t, 2t+1, then at rows 2t+8, 2t+9
//   d  row g at columns 2t, 2t+1, then row g+8
GPU_DEVICE void multiply_add(float (&d)[4], Vec const& a, uint32_t b0, uint32_t b1) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b0), "r"(b1));
#else
  emulator::multiply_add_bf16(d, a.word, b0, b1);
#endif
}

// ---- numbers --------------------------------------------------------------------------------------------

GPU_DEVICE float widen_low(uint32_t pair) {
  uint32_t const bits = pair << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
GPU_DEVICE float widen_high(uint32_t pair) {
  uint32_t const bits = pair & 0xffff0000u;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
GPU_DEVICE float widen(bf16 x) {
  return widen_low(x);
}

// Rounds two floats to bf16 in one word, to nearest even.
GPU_DEVICE uint32_t narrow(float low, float high) {
#if defined(__CUDACC__)
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  auto const round = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  };
  return round(low) | round(high) << 16;
#endif
}

// Returns x * y + z for the two bf16 in each word, rounded once.
GPU_DEVICE uint32_t multiply_add_pairs(uint32_t x, uint32_t y, uint32_t z) {
#if defined(__CUDACC__)
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z));
  return d;
#else
  return narrow(std::fma(widen_low(x), widen_low(y), widen_low(z)),
                std::fma(widen_high(x), widen_high(y), widen_high(z)));
#endif
}

// Selects bytes of the eight bytes {b, a}, b above: nibble i of `select` is the index of byte i.
GPU_DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t select) {
#if defined(__CUDACC__)
  return __byte_perm(a, b, select);
#else
  uint64_t const all = uint64_t(b) << 32 | a;
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= uint32_t(all >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
  return word;
#endif
}

GPU_DEVICE int count_bits(uint32_t word) {
#if defined(__CUDACC__)
  return __popc(word);
#else
  return __builtin_popcount(word);
#endif
}

// Widens an IEEE half in the low half of the word.
GPU_DEVICE float widen_half(uint32_t half) {
#if defined(__CUDACC__)
  float x;
  asm("{.reg .b16 h, unused; mov.b32 {h, unused}, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "r"(half));
  return x;
#else
  int const exponent = int(half >> 10 & 31);
  float const fraction = float(half & 0x3ff);
  float const size = exponent == 0    ? std::ldexp(fraction, -24)
                     : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -size : size;
#endif
}

// Rounds to e4m3, saturated to +-448, to nearest even, in the low byte.
GPU_DEVICE uint32_t narrow_e4m3(float x) {
  // Computed without an instruction on every GPU: sm_80 has none, and the speed does not matter here. |x| is
  // scaled so that a float addition rounds at the last bit that e4m3 keeps.
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint32_t const sign = bits >> 24 & 0x80;
  float size = fminf(fabsf(x), 448.0f);
  if (size < 0x1p-6f) return sign | uint32_t(size * 0x1p9f + 8388608.0f - 8388608.0f);
  memcpy(&bits, &size, sizeof bits);
  bits += 0x7ffffu + (bits >> 20 & 1);  // three bits of fraction remain
  return sign | ((bits >> 20) - (120u << 3));
}

// Products that the compiler does not fuse into a sum, for results with the same bits on every machine.
GPU_DEVICE float multiply_rounded(float x, float y) {
#if defined(__CUDACC__)
  return __fmul_rn(x, y);
#else
  return x * y;
#endif
}

GPU_DEVICE double multiply_rounded(double x, double y) {
#if defined(__CUDACC__)
  return __dmul_rn(x, y);
#else
  return x * y;
#endif
}

// Fast approximations of the hardware, within a few ulp; the emulator uses the C library.
GPU_DEVICE float exp2_fast(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return ::exp2f(x);
#endif
}

GPU_DEVICE float log2_fast(float x) {
#if defined(__CUDACC__)
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return ::log2f(x);
#endif
}

GPU_DEVICE float reciprocal_sqrt(float x) {
#if defined(__CUDACC__)
  return rsqrtf(x);
#else
  return 1.0f / ::sqrtf(x);
#endif
}

}  // namespace bunting::gpu
