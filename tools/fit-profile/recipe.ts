/** Makes a profile's table from measurements and further known facts. */

import type { ProfileTable } from "../../scheduler/cost/profile.ts";
import { decodeFeatures, fitAttention, fitLine, promptFeatures, staircase } from "./fit.ts";
import { readMeasured, readOverhead } from "./measured.ts";

/** Inputs of a table. */
export interface Recipe
  extends Pick<ProfileTable, "name" | "source" | "licence" | "tileTokens" | "pages" | "contextMax"> {
  /** Folders of measurements; the first folder that has a file provides it. */
  readonly folders: readonly string[];
  readonly layers: number;
  /** Path of cpu_overheads.csv; null for no overhead of a server's own code. */
  readonly overhead: string | null;
  /** Times of the output head, if they were not measured. */
  readonly head: ProfileTable["head"];
  /** Ratio of KV bytes read to those read when attention was measured. */
  readonly kvTimes: number;
  /** Decode attention of another device, with a time factor for this one; null if it was measured. */
  readonly decode: { readonly table: ProfileTable; readonly times: number } | null;
}

const PAGE_TOKENS = 16;
const inDigits = (ms: number): number => Number(ms.toPrecision(5));

/** Builds a table. Throws if measurements are missing. */
export function tableOf(recipe: Recipe): ProfileTable {
  const { name, source, licence, tileTokens, pages, contextMax, layers, kvTimes, decode } = recipe;
  const measured = readMeasured(recipe.folders, layers);
  const linear = staircase(measured.linear);
  const all = (weight: number | undefined, times = 1): number => inDigits((weight ?? 0) * layers * times);

  const rows = measured.attention.filter(({ decodes, prompt }) => decodes === 0 && prompt > 0);
  if (rows.length === 0) throw new Error(`${name}: no attention of prompts was measured.`);
  const prompts = fitAttention(rows, linear, layers, promptFeatures);
  const [chunkMs, tokenMs, pairMs, contextMs] = prompts.weights;

  return {
    name,
    source,
    licence,
    tileTokens,
    pages,
    pageTokens: PAGE_TOKENS,
    contextMax,
    overhead:
      recipe.overhead === null ? { stepMs: 0, sequenceMs: 0 } : fitLine(readOverhead(recipe.overhead)),
    head: measured.head === null ? recipe.head : fitLine(measured.head),
    linear,
    prompt: {
      chunkMs: all(chunkMs),
      tokenMs: all(tokenMs),
      pairMs: all(pairMs),
      contextMs: all(contextMs, kvTimes),
    },
    ...(decode === null ? measuredDecodes() : borrowedDecodes(decode)),
  };

  function measuredDecodes(): Pick<ProfileTable, "decode" | "error"> {
    const decodeRows = measured.attention.filter(({ decodes, prompt }) => prompt === 0 && decodes > 0);
    if (decodeRows.length === 0)
      throw new Error(`${name}: no attention of decodes was measured; see --decode.`);
    const { weights, errors } = fitAttention(decodeRows, linear, layers, decodeFeatures);
    const [stepMs, sequenceMs, decodeContextMs] = weights;
    return {
      decode: { stepMs: all(stepMs), sequenceMs: all(sequenceMs), contextMs: all(decodeContextMs, kvTimes) },
      error: errorsOf(errors.p50, errors.p90),
    };
  }

  function borrowedDecodes({ table, times }: NonNullable<Recipe["decode"]>) {
    const { stepMs, sequenceMs, contextMs: readMs } = table.decode;
    return {
      decode: {
        stepMs: inDigits(stepMs * times),
        sequenceMs: inDigits(sequenceMs * times),
        contextMs: inDigits(readMs * times),
      },
      error: errorsOf(table.error.decodeP50, table.error.decodeP90),
    };
  }

  function errorsOf(decodeP50: number, decodeP90: number): ProfileTable["error"] {
    return { promptP50: prompts.errors.p50, promptP90: prompts.errors.p90, decodeP50, decodeP90 };
  }
}
