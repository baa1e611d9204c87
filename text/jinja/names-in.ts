/** All names that a piece of syntax reads. */
export function namesIn(syntax: unknown, into: Set<string> = new Set()): Set<string> {
  if (Array.isArray(syntax)) for (const item of syntax) namesIn(item, into);
  else if (typeof syntax === "object" && syntax !== null && !(syntax instanceof Set)) {
    const node = syntax as Readonly<Record<string, unknown>>;
    if (node.kind === "name") into.add(node.name as string);
    for (const value of Object.values(node)) namesIn(value, into);
  }
  return into;
}
