/** Converts settings to commander options, and parsed options to values. */

import { type Command, Help, InvalidArgumentError, Option } from "commander";
import {
  ConfigError,
  defaultText,
  optionName,
  type Setting,
  serverSettings,
  type Values,
  variableName,
} from "../config.ts";
import { readConfigFile } from "../config-file.ts";

type Settings = Readonly<Record<string, Setting<unknown>>>;

/** Settings of a command, in the order of its options. */
export interface OptionList<Given extends Settings = Settings> {
  readonly settings: Given;
  /** Headings of `--help`, each at the first setting of its group. */
  readonly headings: { readonly [Name in keyof Given]?: string };
  /** Short names of some options, such as -o. */
  readonly letters?: { readonly [Name in keyof Given]?: string };
}

/**
 * Adds an option to the command for each setting. Values may also come from the environment, except for
 * switches, which commander turns on for any value.
 */
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

/**
 * Parsed values. Absent options have the value of the configuration file if the command takes one, else their
 * default.
 */
export function optionValues<Given extends Settings>(command: Command, settings: Given): Values<Given> {
  const options = command.opts();
  const file = settings.config === serverSettings.config ? options.config : undefined;
  const inFile: Readonly<Record<string, unknown>> =
    typeof file === "string" ? readConfigFile(file).settings : {};
  const values = Object.entries(settings).map(([name, setting]) => {
    const source = command.getOptionValueSource(name);
    const isGiven = source !== undefined && source !== "default";
    return [name, (isGiven ? options[name] : inFile[name]) ?? setting.default];
  });
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

/** Maximum width of an option name with its description beside it; a wider one has it below. */
const TERM_COLUMNS_MAX = 26;

/** Layout of `--help`: long names leave enough room for their wrapped descriptions. */
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
