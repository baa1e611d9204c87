/** Random machines and loads, each determined by a seed and a number. */

import { SeededRandom } from "../../base/random.ts";
import { decodeStepMs, promptMs } from "../../scheduler/cost/cost-model.ts";
import { openProfile, type ProfileName, profileNames } from "../../scheduler/cost/profiles.ts";
import type { NoiseName } from "../../simulation/noise.ts";
import type { DocumentLoad, TokenRange } from "../../simulation/workloads/documents.ts";
import { exp, ln } from "../../simulation/workloads/elementary.ts";

export interface Configuration {
  /** Seed of the search; with the number of the draw (`index`) it reproduces the configuration. */
  readonly seed: number;
  readonly index: number;
  readonly device: ProfileName;
  readonly engines: number;
  /** Pages of each engine. */
  readonly pages: number;
  /** Load as a share of the engines' capacity, by a rough estimate. */
  readonly loadShare: number;
  readonly load: DocumentLoad;
  readonly noise: NoiseName | null;
}

/** Formats an id such as "7-123", as `--repeat` accepts it. */
export function idOf({ seed, index }: Pick<Configuration, "seed" | "index">): string {
  return `${seed}-${index}`;
}

/** Parses an id; throws an error with a message for people. */
export function parseId(id: string): { readonly seed: number; readonly index: number } {
  const match = /^(\d+)-(\d+)$/.exec(id);
  if (match === null) throw new Error(`${id} is no configuration: one is <seed>-<number>, such as 7-123.`);
  return { seed: Number(match[1]), index: Number(match[2]) };
}

/** Context limit, far above the longest sequences. */
export const CONTEXT_MAX = 131_072;
const PAGE_TOKENS = 16;
/**
 * Calls of a run at least. They fill the engines (one and a half times the concurrent sequences), yet
 * simulate in a fraction of a second.
 */
const CALLS_MIN = 120;
const CALLS_PER_ENGINE_MIN = 20;
const CALLS_TO_FILL_MAX = 600;
/**
 * Shortest time of arrivals in seconds. It adds calls if calls are short, so that the first, uncached second
 * does not decide.
 */
const ARRIVALS_MIN_S = 10;
const CALLS_MAX = 3000;
const TOGETHER_MAX = 64;

/** Returns configuration number `index` of the search with this seed. */
export function drawConfiguration(seed: number, index: number): Configuration {
  const random = new SeededRandom(seed).child(`configuration ${index}`);
  const is = (percent: number): boolean => random.below(100) < percent;
  const among = <Item>(items: readonly Item[]): Item => items[random.below(items.length)]!;
  /** Draws on a logarithmic scale: as likely between 1 and 2 as between 2 and 4. */
  const scale = (least: number, most: number): number => least * exp(random.unit() * ln(most / least));
  const range = (least: number, most: number): TokenRange => {
    const middle = scale(least, most);
    const spread = among([0, 0.5, 0.9]);
    return {
      least: Math.max(1, Math.round(middle * (1 - spread))),
      most: Math.max(1, Math.round(middle * (1 + spread))),
    };
  };
  const none = { least: 0, most: 0 };

  const device = among(profileNames);
  const engines = among([1, 1, 2, 3, 4, 4, 8, 16]);
  const isShared = is(85);
  const sections = isShared && is(40) ? 2 + random.below(7) : 0;
  const outputTokens = range(1, 800);
  const prefixes = {
    rootTokens: isShared && is(40) ? Math.round(scale(50, 4000)) : 0,
    documents: isShared ? Math.round(scale(1, 200)) : 1,
    documentTokens: isShared ? range(200, 16_000) : none,
    skew: among([0, 0.5, 1, 1.5]),
    sections,
    sectionTokens: sections > 0 ? range(100, 4000) : none,
    suffixTokens: range(16, 4000),
  };
  const lengths = {
    ...prefixes,
    outputTokens,
    tokensMax: is(50) ? null : among([1024, 4 * outputTokens.most]),
    variation: is(60) ? 1 : among([3, 5]),
    tenants: is(70) ? 1 : 2 + random.below(7),
  };
  const longest =
    lengths.rootTokens +
    lengths.documentTokens.most +
    lengths.sectionTokens.most +
    lengths.suffixTokens.most +
    Math.max(outputTokens.most, lengths.tokensMax ?? 0);
  const { spec } = openProfile(device);
  const share = is(50) ? 1 : scale(0.1, 1);
  // A realistic machine holds at least one and a half sequences.
  const pages = Math.max(Math.round(spec.pages * share), Math.ceil((1.5 * longest) / PAGE_TOKENS));
  const machine = { device, engines, pages };
  const together = togetherOf(machine, lengths);
  const callsToFill = Math.min(
    CALLS_TO_FILL_MAX,
    Math.max(CALLS_MIN, Math.ceil(engines * Math.max(CALLS_PER_ENGINE_MIN, 1.5 * together))),
  );
  const loadShare = 0.3 + 1.7 * random.unit();
  const rateOf = (calls: number): number =>
    (loadShare * engines * 1000) / callMs(machine, lengths, calls, together);
  const calls = Math.max(callsToFill, Math.min(CALLS_MAX, Math.ceil(ARRIVALS_MIN_S * rateOf(callsToFill))));
  const load = { ...lengths, calls, callsPerSecond: rateOf(calls) };
  const noise = is(60) ? null : among(["mild", "mild", "rough"] as const);
  return { seed, index, ...machine, loadShare, load, noise };
}

type Machine = Pick<Configuration, "device" | "engines" | "pages">;
type Lengths = Omit<DocumentLoad, "calls" | "callsPerSecond">;

/** Estimates how many sequences fit into an engine, with their own tokens and a part of their prefix. */
function togetherOf({ pages }: Machine, load: Lengths): number {
  const own = middleOf(load.suffixTokens) + middleOf(load.outputTokens) + prefixOf(load) / 4;
  return Math.max(1, Math.min(TOGETHER_MAX, Math.floor((0.7 * pages * PAGE_TOKENS) / own)));
}

/** Estimates the time of one call on an engine: its uncached prompt, and its share of full steps. */
function callMs({ device, engines, pages }: Machine, load: Lengths, calls: number, together: number): number {
  const { profile } = openProfile(device);
  const prefix = prefixOf(load);
  const all = prefixesOf(load);
  const held = engines * pages * PAGE_TOKENS;
  const missed = Math.max(Math.min(1, load.documents / calls), all > held ? 1 - held / all : 0);
  const suffix = middleOf(load.suffixTokens);
  const output = middleOf(load.outputTokens);
  const cached = Math.floor(prefix * (1 - missed));
  const prompt = promptMs(profile, Math.ceil(suffix + prefix - cached), cached);
  const context = Math.round(prefix + suffix + output / 2);
  return prompt + (output * decodeStepMs(profile, together, context)) / together;
}

/** Tokens of one call's prefix. */
function prefixOf({ rootTokens, documentTokens, sectionTokens }: Lengths): number {
  return rootTokens + middleOf(documentTokens) + middleOf(sectionTokens);
}

/** Tokens of all prefixes, summed. */
function prefixesOf({ rootTokens, documents, documentTokens, sections, sectionTokens }: Lengths): number {
  return rootTokens + documents * (middleOf(documentTokens) + sections * middleOf(sectionTokens));
}

function middleOf({ least, most }: TokenRange): number {
  return (least + most) / 2;
}

/** Returns the traits of a configuration, by which losses are grouped. */
export function traitsOf({
  device,
  engines,
  pages,
  loadShare,
  load,
  noise,
}: Configuration): readonly string[] {
  const prefixes = prefixesOf(load);
  const held = engines * pages * PAGE_TOKENS;
  const shared =
    prefixes === 0
      ? "nothing shared"
      : `prefixes ${prefixes > held ? "exceed all memory" : prefixes > held / engines ? "exceed one engine" : "fit one engine"}`;
  return [
    device,
    engines === 1 ? "1 engine" : engines <= 4 ? "2 to 4 engines" : "8 or 16 engines",
    shared,
    loadShare < 0.8 ? "load below 0.8" : loadShare < 1.2 ? "load 0.8 to 1.2" : "load above 1.2",
    middleOf(load.outputTokens) >= 100 ? "answers of 100 and more" : "answers below 100",
    load.variation > 1 ? "bursts" : "even arrivals",
    load.tenants > 1 ? "several tenants" : "one tenant",
    `${noise ?? "no"} noise`,
  ];
}

export function describe(configuration: Configuration): string {
  const { documents, documentTokens, suffixTokens, outputTokens } = configuration.load;
  const [document, question, answer] = [documentTokens, suffixTokens, outputTokens].map(middleOf);
  const lengths = `${documents} documents of ${document} tokens, questions of ${question}, answers of ${answer}`;
  return [`${configuration.pages} pages`, lengths, ...traitsOf(configuration)].join("; ");
}
