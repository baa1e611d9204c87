/** From settings to commander options and back. */

import { type Command, InvalidArgumentError, Option } from "commander";
import { ConfigError, defaultText, optionName, type Setting, type Values, variableName } from "../config.ts";

type Settings = Readonly<Record<string, Setting<unknown>>>;

/** Adds an option to the command for each setting. Values may come from the environment, too; switches may not, since
 *  commander turns them on for any value. `letters`: short names, such as -o, of some. */
export function addOptions(
  command: Command,
  settings: Settings,
  letters: Readonly<Record<string, string>> = {},
): void {
  for (const [name, setting] of Object.entries(settings)) {
    const long = letters[name] === undefined ? optionName(name) : `${letters[name]}, ${optionName(name)}`;
    const flags = setting.placeholder === null ? long : `${long} <${setting.placeholder}>`;
    const option = new Option(flags, setting.sentence);
    const shown = defaultText(setting);
    if (shown !== null) option.default(setting.default, shown);
    if (setting.placeholder !== null) {
      option.env(variableName(name)).argParser((value, previous) => parse(setting, value, previous));
    }
    command.addOption(option);
  }
}

/** What was parsed, with the defaults for what was not given. */
export function optionValues<Given extends Settings>(command: Command, settings: Given): Values<Given> {
  const options = command.opts();
  const values = Object.entries(settings).map(([name, setting]) => [name, options[name] ?? setting.default]);
  return Object.freeze(Object.fromEntries(values)) as Values<Given>;
}

function parse(setting: Setting<unknown>, value: string, previous: unknown): unknown {
  try {
    const parsed = setting.parse(value);
    return setting.repeats ? [...((previous ?? []) as unknown[]), ...(parsed as unknown[])] : parsed;
  } catch (error) {
    if (error instanceof ConfigError) throw new InvalidArgumentError(error.message);
    throw error;
  }
}
