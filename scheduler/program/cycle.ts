/**
 * Finds a cycle reachable from `starts`: its vertices in order, each once; null if there is none. Iterative
 * depth-first search; visits each vertex and edge once. Yields at each start and each finished vertex.
 */
export function* findCycle<Vertex>(
  starts: Iterable<Vertex>,
  next: (vertex: Vertex) => Iterable<Vertex>,
): Generator<void, readonly Vertex[] | null> {
  const done = new Set<Vertex>();
  for (const start of starts) {
    if (done.has(start)) continue;
    const path = [start];
    const onPath = new Set(path);
    const ways = [next(start)[Symbol.iterator]()];
    while (path.length > 0) {
      const step = ways.at(-1)!.next();
      if (step.done === true) {
        const left = path.pop()!;
        ways.pop();
        onPath.delete(left);
        done.add(left);
        yield;
      } else if (onPath.has(step.value)) return path.slice(path.indexOf(step.value));
      else if (!done.has(step.value)) {
        path.push(step.value);
        onPath.add(step.value);
        ways.push(next(step.value)[Symbol.iterator]());
      }
    }
  }
  return null;
}
