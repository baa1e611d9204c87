import { dlopen, ptr } from "bun:ffi";

const CLOCK_THREAD_CPUTIME_ID = 3;
const libc = dlopen("libc.so.6", { clock_gettime: { args: ["i32", "ptr"], returns: "i32" } });
/** Seconds and nanoseconds, 64 bits each. */
const time = new BigInt64Array(2);
const words = new Int32Array(time.buffer);
const address = ptr(time);

/** Processor time of this thread in nanoseconds: what others do on the machine meanwhile is not in it, the pauses of the
 *  collector on this thread are. */
export function threadNs(): number {
  libc.symbols.clock_gettime(CLOCK_THREAD_CPUTIME_ID, address);
  return words[0]! * 1e9 + words[2]!;
}
