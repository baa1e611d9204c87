/** Joins Prometheus texts whose metrics have the same names and different labels: each name has one heading. */
export function mergedMetrics(texts: readonly string[]): string {
  const metrics = new Map<string, string[]>();
  for (const block of texts.flatMap((text) => text.split("\n\n"))) {
    const lines = block.split("\n").filter((line) => line !== "");
    const heading = lines.filter((line) => line.startsWith("#")).join("\n");
    if (heading === "") continue;
    const samples = metrics.get(heading) ?? [];
    metrics.set(heading, samples);
    samples.push(...lines.filter((line) => !line.startsWith("#")));
  }
  return [...metrics].map(([heading, samples]) => `${[heading, ...samples].join("\n")}\n`).join("\n");
}
