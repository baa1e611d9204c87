/** From settings to commander options and back. */

import { type Command, Help, InvalidArgumentError, Option } from "commander";
import { ConfigError, defaultText, optionName, type Setting, type Values, variableName } from "../config.ts";

type Settings = Readonly<Record<string, Setting<unknown>>>;

/** A command's settings, as its options are listed. */
export interface OptionList<Given extends Settings = Settings> {
  readonly settings: Given;
  /** Headings of `--help`, each at the setting that begins its group. */
  readonly headings: { readonly [Name in keyof Given]?: string };
  /** Short names, such as -o, of some. */
  readonly letters?: { readonly [Name in keyof Given]?: string };
}

/** Adds an option to the command for each setting. Values may come from the environment, too; switches may not, since
 *  commander turns them on for any value. */
export function addOptions(command: Command, { settings, headings, letters = {} }: OptionList): void {
  for (const [name, setting] of Object.entries(settings)) {
    const heading = headings[name];
    if (heading !== undefined) command.optionsGroup(heading);
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

/** Widest name of an option that its description stands beside; below a wider one. */
const TERM_COLUMNS_MAX = 26;

/** How `--help` is laid out: a long name leaves its description room enough to be wrapped. */
export const helpLayout: Partial<Help> = {
  padWidth(command, helper) {
    return Math.min(TERM_COLUMNS_MAX, Help.prototype.padWidth.call(this, command, helper));
  },
  formatItem(term, termWidth, description, helper) {
    const item = (shown: string): string =>
      Help.prototype.formatItem.call(this, shown, termWidth, description, helper);
    return helper.displayWidth(term) <= termWidth ? item(term) : `  ${term}\n${item("")}`;
  },
};
