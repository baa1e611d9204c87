/** Kinds of settings: what a person may type for each, and its default. */

import { homedir } from "node:os";
import { join } from "node:path";

/**
 * A setting. The name of its field determines the option and the variable: stepTokens, --step-tokens,
 * BUNTING_STEP_TOKENS.
 */
export interface Setting<Value> {
  /** Unit of the number; null for none. */
  readonly unit: string | null;
  /** Placeholder of the value in `--help`; null for a switch. */
  readonly placeholder: string | null;
  readonly default: Value;
  /** Text for a default whose value does not explain itself; null otherwise. */
  readonly defaultText: string | null;
  readonly sentence: string;
  /** True if the option may be repeated; the values add up. */
  readonly repeats: boolean;
  /** Parses the typed text. Throws `ConfigError`. */
  readonly parse: (text: string) => Value;
}

/** Error about a wrong setting, with a sentence for people. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** The one of `values` that was typed. Throws ConfigError. */
export function oneOf<Value extends string>(value: string, values: readonly Value[]): Value {
  const found = values.find((candidate) => candidate === value);
  if (found === undefined) throw new ConfigError(`"${value}" is not one of ${values.join(", ")}.`);
  return found;
}

interface NumberRule {
  readonly default: number;
  readonly min: number;
  readonly max: number;
  readonly sentence: string;
  readonly unit?: string;
  readonly defaultText?: string;
}

export function integer(rule: NumberRule): Setting<number> {
  return numeric(rule, /^-?\d{1,15}$/, "a whole number");
}

export function decimal(rule: NumberRule): Setting<number> {
  return numeric(rule, /^-?(\d{1,15}(\.\d*)?|\.\d+)$/, "a number");
}

function numeric(rule: NumberRule, form: RegExp, what: string): Setting<number> {
  return setting({
    ...rule,
    placeholder: "number",
    parse: (value) => {
      const number = Number(value);
      if (!form.test(value) || number < rule.min || number > rule.max) {
        throw new ConfigError(`"${value}" is not ${what} between ${rule.min} and ${rule.max}.`);
      }
      return number;
    },
  });
}

export function text(rule: {
  readonly default: string;
  readonly sentence: string;
  readonly placeholder?: string;
}): Setting<string> {
  return setting({ placeholder: "text", ...rule, parse: notEmpty });
}

export function optional(rule: {
  readonly sentence: string;
  readonly placeholder?: string;
  readonly defaultText?: string;
}): Setting<string | null> {
  const isPath = /^(file|folder)\b/.test(rule.placeholder ?? "");
  const parse = (value: string): string => (isPath ? fromHome(notEmpty(value)) : notEmpty(value));
  return setting<string | null>({ placeholder: "text", ...rule, default: null, parse });
}

/** Replaces `~/` at the start of a path by the user's home, as shells do in arguments and not in files. */
export function fromHome(path: string): string {
  return path.startsWith("~/") ? join(homedir(), path.slice(2)) : path;
}

/**
 * Throws ConfigError for an empty text. It usually comes from an unset variable of a script, and must not
 * mean the working folder, say.
 */
export function notEmpty(value: string): string {
  if (value === "") throw new ConfigError("It is empty.");
  return value;
}

/** Setting of one of some names. */
export function choice<Value extends string>({
  among,
  ...rule
}: {
  readonly default: Value;
  readonly defaultText: string;
  readonly among: readonly Value[];
  readonly sentence: string;
}): Setting<Value> {
  return setting({ ...rule, placeholder: among.join("|"), parse: (value) => oneOf(value, among) });
}

/** A switch that is off by default. */
export function flag(rule: { readonly sentence: string }): Setting<boolean> {
  return setting({ ...rule, placeholder: null, default: false, parse: () => true });
}

/**
 * Setting of several values: repeated options or, unless values may hold commas, a comma-separated text.
 * `item` parses a value or throws ConfigError.
 */
export function list({
  holdsCommas = false,
  item = (typed) => typed,
  ...rule
}: {
  readonly sentence: string;
  readonly placeholder: string;
  readonly defaultText: string;
  readonly holdsCommas?: boolean;
  readonly item?: (typed: string) => string;
}): Setting<readonly string[]> {
  const parse = (value: string): readonly string[] => {
    const items = holdsCommas ? [value] : value.split(",").map((typed) => typed.trim());
    if (items.includes("")) throw new ConfigError(`"${value}" holds an empty ${rule.placeholder}.`);
    return items.map(item);
  };
  return setting<readonly string[]>({ ...rule, default: [], repeats: true, parse });
}

export function setting<Value>(rule: {
  readonly placeholder: string | null;
  readonly default: Value;
  readonly sentence: string;
  readonly parse: (text: string) => Value;
  readonly unit?: string;
  readonly defaultText?: string;
  readonly repeats?: boolean;
}): Setting<Value> {
  return Object.freeze({ unit: null, defaultText: null, repeats: false, ...rule });
}
