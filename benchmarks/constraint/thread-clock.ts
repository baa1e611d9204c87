/** The clock of one thread. */
import { dlopen } from "bun:ffi";

/** `CLOCK_THREAD_CPUTIME_ID` of Linux: to the nanosecond, where process.threadCpuUsage may count in ticks of milliseconds. */
const THREAD_CLOCK = 3;
const libc = dlopen("libc.so.6", { clock_gettime: { args: ["i32", "ptr"], returns: "i32" } });
const time = new BigInt64Array(2);

/** Milliseconds of processor time of this thread: what other programs do on the machine is not in it, nor the collection of
 *  garbage and the compilation of code as far as other threads do them. */
export function threadMs(): number {
  libc.symbols.clock_gettime(THREAD_CLOCK, time);
  return Number(time[0]) * 1e3 + Number(time[1]) / 1e6;
}
