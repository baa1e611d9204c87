/**
 * The order in which a task group's members are placed: the most work first, ties as they came. With each placed where it
 * ends first, given those before it, this is list scheduling: the task group's last answer comes at most 4/3 as late as it
 * could at best (Graham, 1969), as far as the costs are right. The prefix that members share is paid for once per
 * engine, because it counts as there as soon as the first of them is.
 */
export function taskGroupOrder(workMs: readonly number[]): number[] {
  return workMs.map((_, index) => index).sort((a, b) => workMs[b]! - workMs[a]! || a - b);
}
