/**
 * The order in which a task group's members are placed: the most work first, ties by arrival. As each is
 * placed where it ends first, given those before it, this is list scheduling: the task group's last answer
 * comes at most 4/3 as late as it could at best (Graham, 1969), as far as the costs are right. A shared
 * prefix is paid for once per engine, because it counts as there from the first member on.
 */
export function taskGroupOrder(workMs: readonly number[]): number[] {
  return workMs.map((_, index) => index).sort((a, b) => workMs[b]! - workMs[a]! || a - b);
}
