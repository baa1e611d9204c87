import { setPriority } from "node:os";

/** Lets others go before this thread: of what serves requests the threads that stream answers, of what runs in the background
 *  everything. Linux has priorities of threads, other systems only of processes. */
export function giveWay(work: "serving" | "background"): void {
  if (process.platform === "linux") setPriority(0, work === "serving" ? 5 : 10);
}
