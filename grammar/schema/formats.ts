import { regexFormat } from "./regex-format.ts";

/** Patterns of string formats. Each is a subset of its standard, never more. */

const hexadecimal = "[0-9a-fA-F]";
const year = "[0-9]{4}";
const leapYear = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const date =
  `(?:${year}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)` +
  `|02-(?:0[1-9]|1[0-9]|2[0-8]))|${leapYear}-02-29)`;
const time =
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const timeOfDuration = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
const dateOfDuration = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
const byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const ipv4 = `${byte}(?:\\.${byte}){3}`;
const group = `${hexadecimal}{1,4}`;
const last32 = `(?:${group}:${group}|${ipv4})`;
const ipv6 =
  `(?:(?:${group}:){6}${last32}|::(?:${group}:){5}${last32}|(?:${group})?::(?:${group}:){4}${last32}` +
  `|(?:(?:${group}:){0,1}${group})?::(?:${group}:){3}${last32}` +
  `|(?:(?:${group}:){0,2}${group})?::(?:${group}:){2}${last32}` +
  `|(?:(?:${group}:){0,3}${group})?::${group}:${last32}|(?:(?:${group}:){0,4}${group})?::${last32}` +
  `|(?:(?:${group}:){0,5}${group})?::${group}|(?:(?:${group}:){0,6}${group})?::)`;
// Shorter than the permitted 63 and 253 characters, and without double hyphens, which are reserved for other
// alphabets. No length must then be counted across parts.
const label = "[a-zA-Z0-9]{1,20}(?:-[a-zA-Z0-9]{1,20}){0,2}";
const hostname = `${label}(?:\\.${label}){0,3}`;
const atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
const unreserved = "[a-zA-Z0-9._~!$&'()*+,;=:@-]";
const escaped = `%${hexadecimal}{2}`;
const pathCharacter = `(?:${unreserved}|${escaped})`;
const rest = `(?:/${pathCharacter}*)*(?:\\?(?:${pathCharacter}|[/?])*)?(?:#(?:${pathCharacter}|[/?])*)?`;
const authority = `(?:(?:[a-zA-Z0-9._~-]+(?::[a-zA-Z0-9._~-]*)?@)?(?:${hostname}|\\[${ipv6}\\])(?::[0-9]{1,5})?)`;

const sources: Readonly<Record<string, string>> = {
  date,
  time,
  "date-time": `${date}[Tt]${time}`,
  duration: `P(?:${dateOfDuration}(?:${timeOfDuration})?|${timeOfDuration}|[0-9]+W)`,
  uuid: `${hexadecimal}{8}-${hexadecimal}{4}-${hexadecimal}{4}-${hexadecimal}{4}-${hexadecimal}{12}`,
  ipv4,
  ipv6,
  hostname,
  email: `${atom}(?:\\.${atom}){0,2}@${label}(?:\\.${label}){1,2}`,
  regex: regexFormat,
  uri: `[a-zA-Z][a-zA-Z0-9+.-]*:(?://${authority}${rest}|${pathCharacter}+${rest})`,
};

/** Returns the pattern of a format, for the whole string; null: unknown, so any string is allowed. */
export function patternOfFormat(format: string): string | null {
  return Object.hasOwn(sources, format) ? `^(?:${sources[format]})$` : null;
}
