/** Names and labels that queries in Prometheus' language ask for. */

/** Selector of a query: a metric, and matchers by label. */
export interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly operator: string; readonly value: string }[];
}

export interface Asked {
  readonly selectors: readonly Selector[];
  /** Labels by which results are grouped or joined. */
  readonly labels: readonly string[];
}

const WORDS = new Set(["and", "or", "unless", "offset", "bool", "inf", "nan"]);

/** Reads a query. Functions are names before a bracket; ranges and numbers name nothing. */
export function askedBy(query: string): Asked {
  const labels: string[] = [];
  const selectors: Selector[] = [];
  const rest = query
    .replace(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g, (_, list: string) => {
      labels.push(...(list.match(/\w+/g) ?? []));
      return " ";
    })
    .replace(/\[[^\]]*\]/g, " ");
  const named = /(?<![\w.])([a-zA-Z_:][\w:]*)\s*(\(|\{(?:[^}"]|"(?:[^"\\]|\\.)*")*\})?/g;
  for (const [, metric = "", after = ""] of rest.matchAll(named)) {
    if (after === "(" || WORDS.has(metric)) continue;
    const matchers = [...after.matchAll(/(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"/g)];
    selectors.push({
      metric,
      matchers: matchers.map(([, label, operator, value]) => {
        return { label: label!, operator: operator!, value: value! };
      }),
    });
  }
  return { selectors, labels };
}

/** Labels of each sample of a scrape, by name. */
export function samplesOf(text: string): ReadonlyMap<string, readonly Readonly<Record<string, string>>[]> {
  const samples = new Map<string, Record<string, string>[]>();
  for (const [, name, labels = ""] of text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$/gm)) {
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
    const known = samples.get(name!) ?? [];
    samples.set(name!, known);
    known.push(Object.fromEntries(pairs.map(([, label, value]) => [label!, value!])));
  }
  return samples;
}
