/**
 * What `start` makes of each item, in order of the items. It is started for later items while earlier ones are not done, up to where
 * `isEnough` says so of those under way; one always is.
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
