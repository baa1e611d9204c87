import { setPriority } from "node:os";

/**
 * Lowers the calling thread's priority. "serving" puts it behind the threads that stream answers,
 * "background" behind all others. Linux has priorities per thread, other systems only per process.
 */
export function giveWay(work: "serving" | "background"): void {
  if (process.platform === "linux") setPriority(0, work === "serving" ? 5 : 10);
}
