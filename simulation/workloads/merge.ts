import { assert } from "../../base/assert.ts";
import type { Arrival, Workload } from "../workload.ts";

/**
 * Merges several workloads by time; ties go to the earlier part. A part may begin `startMs` late, and may set
 * the kind of its calls for reports.
 */
export function merged(
  name: string,
  parts: readonly { readonly workload: Workload; readonly startMs?: number; readonly kind?: string }[],
): Workload {
  assert(parts.length > 0, "there is something to merge");
  const ownOf = new Map<Arrival, { readonly part: number; readonly own: Arrival }>();
  const shifted = (part: number, own: Arrival | null): Arrival | null => {
    if (own === null) return null;
    const { startMs = 0, kind = own.kind } = parts[part]!;
    const arrival = { ...own, atMs: own.atMs + startMs, kind };
    ownOf.set(arrival, { part, own });
    return arrival;
  };
  const heads = parts.map(({ workload }, part) => shifted(part, workload.next()));
  return {
    name,
    vocabSize: Math.max(...parts.map(({ workload }) => workload.vocabSize)),
    next: () => {
      let best: number | null = null;
      heads.forEach((head, part) => {
        if (head !== null && (best === null || head.atMs < heads[best]!.atMs)) best = part;
      });
      if (best === null) return null;
      const arrival = heads[best]!;
      heads[best] = shifted(best, parts[best]!.workload.next());
      return arrival;
    },
    after: (arrival, answer) => {
      const { part, own } = ownOf.get(arrival)!;
      ownOf.delete(arrival);
      const { workload, startMs = 0 } = parts[part]!;
      const followers = workload.after(own, { ...answer, finishedMs: answer.finishedMs - startMs });
      return followers.map((follower) => shifted(part, follower)!);
    },
  };
}
