/** Processor clock of one thread. */
import { dlopen } from "bun:ffi";

/**
 * Clock ID `CLOCK_THREAD_CPUTIME_ID` of Linux, with nanoseconds; process.threadCpuUsage may have ticks of
 * milliseconds.
 */
const THREAD_CLOCK = 3;
const libc = dlopen("libc.so.6", { clock_gettime: { args: ["i32", "ptr"], returns: "i32" } });
const time = new BigInt64Array(2);

/**
 * Returns milliseconds of processor time of this thread. It excludes other programs, and garbage collection
 * and JIT compilation on other threads.
 */
export function threadMs(): number {
  libc.symbols.clock_gettime(THREAD_CLOCK, time);
  return Number(time[0]) * 1e3 + Number(time[1]) / 1e6;
}
