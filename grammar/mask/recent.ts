/**
 * Makes the entry the newest of at most `most`. Evicts and returns the value that was remembered the longest
 * ago.
 */
export function remember<Key, Value>(
  entries: Map<Key, Value>,
  key: Key,
  value: Value,
  most: number,
): Value | undefined {
  entries.delete(key);
  let gone: Value | undefined;
  if (entries.size >= most) {
    const [oldest, of] = entries.entries().next().value!;
    entries.delete(oldest);
    gone = of;
  }
  entries.set(key, value);
  return gone;
}
