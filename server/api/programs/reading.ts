import type { Criteria, TransformStep } from "../../../scheduler/program/spec.ts";
import { parseStep } from "../../../scheduler/program/transforms/transform.ts";
import { badRequest } from "../../http/errors.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { type FieldKind, type Fields, refusal } from "../fields.ts";
import { tbtMsMax, ttftMsMax } from "../targets.ts";

/** Limits of one request about programs. The limits of a whole program are in server/program/limits.ts. */
export const programRequestLimits = {
  callsMax: 16_384,
  variablesMax: 32_768,
  casesMax: 64,
  transformsMax: 16,
  /** Placeholders of one call, counted with repetitions. */
  placesMax: 4096,
  /** Characters of all `bad_words`, which the serving thread tokenises itself. */
  wordCharactersMax: 65_536,
} as const;

/**
 * State of reading one body. Reading blocks the serving thread, so limits apply to all calls of the body
 * together.
 */
export class Reading {
  /** The served model. Its `tokensOf` counts characters towards the limit. */
  readonly served: ServedModel;
  #outputs = 0;
  #characters = 0;

  constructor(served: ServedModel) {
    this.served = {
      ...served,
      tokensOf: (text) => {
        this.#characters += text.length;
        const { wordCharactersMax: max } = programRequestLimits;
        // Each word counts twice: with and without a space before it.
        if (this.#characters > 2 * max)
          throw badRequest(`bad_words of all calls may have ${max} characters together`, "calls");
        return served.tokensOf(text);
      },
    };
  }

  /** Counts an output. Throws 400 beyond the limit. */
  countOutput(): void {
    const { variablesMax: max } = programRequestLimits;
    if (++this.#outputs > max) throw badRequest(`calls may have ${max} outputs together at most`, "calls");
  }
}

/**
 * Parses the criteria of an awaited value: `latency`, `throughput`, `ttft:200` or `tbt:50` (milliseconds), or
 * several, separated by commas. A target implies latency. Throws 400.
 */
export function criteriaOf(given: unknown, path: string): Criteria {
  const expected = `latency, throughput, ttft:1 to ttft:${ttftMsMax} or tbt:1 to tbt:${tbtMsMax}, with commas between several`;
  let objective: Criteria["objective"] = "latency";
  let ttftMs: number | null = null;
  let tbtMs: number | null = null;
  for (const wish of typeof given === "string" ? given.split(",") : [""]) {
    const target = /^(ttft|tbt):(\d{1,9}(?:\.\d{1,3})?)$/.exec(wish.trim());
    const ms = Number(target?.[2]);
    if (target?.[1] === "ttft" && ms >= 1 && ms <= ttftMsMax) ttftMs = ms;
    else if (target?.[1] === "tbt" && ms >= 1 && ms <= tbtMsMax) tbtMs = ms;
    else if (wish.trim() === "throughput") objective = "throughput";
    else if (wish.trim() !== "latency") throw refusal(path, expected, given);
  }
  if (objective === "throughput" && (ttftMs !== null || tbtMs !== null)) throw refusal(path, expected, given);
  return { objective, ttftMs, tbtMs };
}

/** A transform: its name, or an object with its name and argument. */
export const transformKind: FieldKind = { type: ["string", "object"] };

/** A list of transforms; empty when the field is missing. */
export function transformsOf(fields: Fields, name: string): TransformStep[] {
  const list = fields.list(name, programRequestLimits.transformsMax, transformKind) ?? [];
  return list.map((given, index) => transformOf(given, `${fields.pathOf(name)}[${index}]`));
}

/** Throws 400. */
export function transformOf(given: unknown, path: string): TransformStep {
  const step = parseStep(given);
  if ("problem" in step) throw badRequest(`${path} ${step.problem}`, path);
  return step;
}

/** A piece of a template: plain text, or the name in {{name}}. */
export type TemplatePiece =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "placeholder"; readonly name: string };

/**
 * Splits a template at its placeholders, `{{name}}` with optional white space inside. Other text between
 * braces, such as JSON in a prompt, stays text. No piece is empty.
 */
export function piecesOf(template: string): TemplatePiece[] {
  const pieces: TemplatePiece[] = [];
  let from = 0;
  for (const { 0: whole, 1: name, index } of template.matchAll(/\{\{\s*([\w.-]{1,128})\s*\}\}/g)) {
    if (index > from) pieces.push({ kind: "text", text: template.slice(from, index) });
    pieces.push({ kind: "placeholder", name: name! });
    from = index + whole.length;
  }
  if (from < template.length) pieces.push({ kind: "text", text: template.slice(from) });
  return pieces;
}
