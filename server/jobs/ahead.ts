/**
 * Yields each item with the result of `start`, in order. Starts later items before earlier ones are done,
 * until `isEnough` is true of the unfinished items; at least one always runs.
 */
export async function* ahead<Item, Result>(
  items: Iterable<Item>,
  start: (item: Item) => Promise<Result>,
  isEnough: (underWay: readonly Item[]) => boolean,
): AsyncGenerator<readonly [Item, Result]> {
  const underWay: Item[] = [];
  const results: Promise<Result>[] = [];
  for (const item of items) {
    underWay.push(item);
    results.push(start(item));
    while (underWay.length > 0 && isEnough(underWay)) yield [underWay.shift()!, await results.shift()!];
  }
  while (underWay.length > 0) yield [underWay.shift()!, await results.shift()!];
}
