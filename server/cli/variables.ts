/** Detects environment variables that look like settings but set nothing. */

import type { Command } from "commander";
import { closestTo } from "../closest.ts";

const PREFIX = "BUNTING_";
/** Maximum wrong letters of a misspelled variable; one for short names, which other programs may use. */
const WRONG_MAX = 2;
const SHORT = 3;

/**
 * Returns a sentence about a variable that sets nothing (misspelled, or named after a switch); null if there
 * is none.
 */
export function variableProblem(program: Command, env: Readonly<Record<string, unknown>>): string | null {
  const options = program.commands.flatMap((command) => command.options);
  const known = options.flatMap(({ envVar }) => envVar?.slice(PREFIX.length) ?? []);
  for (const variable of Object.keys(env)) {
    if (!variable.startsWith(PREFIX)) continue;
    const name = variable.slice(PREFIX.length);
    if (known.includes(name)) continue;
    const option = `--${name.toLowerCase().replaceAll("_", "-")}`;
    if (options.some(({ long }) => long === option))
      return `${variable} sets nothing: ${option} is a switch of the command line and the configuration file.`;
    const close = closestTo(name, known, name.length <= SHORT ? 1 : WRONG_MAX);
    if (close !== null) return `${variable} is not a setting; did you mean ${PREFIX}${close}?`;
  }
  return null;
}
