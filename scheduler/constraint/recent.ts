/** Makes it the newest entry of `most` at most: the one goes that was remembered the longest ago. */
export function remember<Key, Value>(entries: Map<Key, Value>, key: Key, value: Value, most: number): void {
  entries.delete(key);
  if (entries.size >= most) entries.delete(entries.keys().next().value!);
  entries.set(key, value);
}
