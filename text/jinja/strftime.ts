/** Python's `strftime` in the C locale, in local time. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%([-_0^#]?)([\s\S])/g, (directive, flag: string, letter: string) => {
    const field = fields[letter];
    if (field === undefined) return directive;
    return flagged(field(date), flag);
  });
}

const names = (options: Intl.DateTimeFormatOptions) => (date: Date) =>
  new Intl.DateTimeFormat("en-US", options).format(date);
const padded = (value: number, width = 2, fill = "0"): string => String(value).padStart(width, fill);
const hour12 = (date: Date): number => date.getHours() % 12 || 12;

/** Days since the first of January. */
function dayOfYear(date: Date): number {
  const start = Date.UTC(date.getFullYear(), 0, 1);
  return Math.round((Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - start) / 86_400_000);
}

/** Number of weeks begun since New Year; `firstDay`: 0 for Sunday. */
function weekOfYear(date: Date, firstDay: number): number {
  return Math.floor((dayOfYear(date) + 7 - ((date.getDay() - firstDay + 7) % 7)) / 7);
}

/** ISO 8601: a week belongs to the year of its Thursday. */
function isoWeek(date: Date): { readonly year: number; readonly week: number } {
  const thursday = new Date(
    date.getFullYear(),
    date.getMonth(),
    date.getDate() + 3 - ((date.getDay() + 6) % 7),
  );
  return { year: thursday.getFullYear(), week: Math.floor(dayOfYear(thursday) / 7) + 1 };
}

const fields: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  G: (date) => String(isoWeek(date).year),
  C: (date) => padded(Math.floor(date.getFullYear() / 100)),
  y: (date) => padded(date.getFullYear() % 100),
  g: (date) => padded(isoWeek(date).year % 100),
  m: (date) => padded(date.getMonth() + 1),
  d: (date) => padded(date.getDate()),
  e: (date) => padded(date.getDate(), 2, " "),
  j: (date) => padded(dayOfYear(date) + 1, 3),
  U: (date) => padded(weekOfYear(date, 0)),
  W: (date) => padded(weekOfYear(date, 1)),
  V: (date) => padded(isoWeek(date).week),
  w: (date) => String(date.getDay()),
  u: (date) => String(date.getDay() || 7),
  B: names({ month: "long" }),
  b: names({ month: "short" }),
  h: names({ month: "short" }),
  A: names({ weekday: "long" }),
  a: names({ weekday: "short" }),
  H: (date) => padded(date.getHours()),
  k: (date) => padded(date.getHours(), 2, " "),
  I: (date) => padded(hour12(date)),
  l: (date) => padded(hour12(date), 2, " "),
  p: (date) => (date.getHours() < 12 ? "AM" : "PM"),
  P: (date) => (date.getHours() < 12 ? "am" : "pm"),
  M: (date) => padded(date.getMinutes()),
  S: (date) => padded(date.getSeconds()),
  f: (date) => padded(date.getMilliseconds() * 1000, 6),
  s: (date) => String(Math.floor(date.getTime() / 1000)),
  F: (date) => strftime(date, "%Y-%m-%d"),
  D: (date) => strftime(date, "%m/%d/%y"),
  x: (date) => strftime(date, "%m/%d/%y"),
  T: (date) => strftime(date, "%H:%M:%S"),
  X: (date) => strftime(date, "%H:%M:%S"),
  R: (date) => strftime(date, "%H:%M"),
  r: (date) => strftime(date, "%I:%M:%S %p"),
  c: (date) => strftime(date, "%a %b %e %H:%M:%S %Y"),
  // datetime.now() has no time zone.
  z: () => "",
  Z: () => "",
  n: () => "\n",
  t: () => "\t",
  "%": () => "%",
};

/** glibc's flags: `-` no padding, `_` spaces, `0` zeros, `^` upper case. */
function flagged(text: string, flag: string): string {
  switch (flag) {
    case "-":
      return text.replace(/^[0 ]+(?=\d)/, "");
    case "_":
      return text.replace(/^0+(?=\d)/, (zeros) => " ".repeat(zeros.length));
    case "0":
      return text.replace(/^ +/, (spaces) => "0".repeat(spaces.length));
    case "^":
      return text.toUpperCase();
    default:
      return text;
  }
}
