/** Value of a truncated JSON text: its complete parts, with all brackets closed. Null if there are none. */
export function wholeValueIn(json: string): unknown {
  return valueIn(json, false);
}

/** The same, with an unfinished string at the end included. */
export function begunValueIn(json: string): unknown {
  return valueIn(json, true);
}

function valueIn(json: string, keepsCutString: boolean): unknown {
  const closers: string[] = [];
  let whole = { end: 0, closers: "" };
  const closed = (): string => closers.toReversed().join("");
  const note = (end: number): void => {
    whole = { end, closers: closed() };
  };
  /** True if a string here is a key, which means nothing without its value. */
  const isKey = (at: number): boolean => {
    const before = json.slice(0, at).trimEnd().at(-1);
    return closers.at(-1) === "}" && before !== ":";
  };
  for (let at = 0; at < json.length; ) {
    const unit = json[at]!;
    const length = tokenLength(json, at);
    if (length === 0) {
      if (keepsCutString && unit === '"' && !isKey(at)) return JSON.parse(closedString(json, at) + closed());
      break;
    }
    const end = at + length;
    if (unit === "{" || unit === "[") {
      closers.push(unit === "{" ? "}" : "]");
      note(end);
    } else if (unit === "}" || unit === "]") {
      closers.pop();
      note(end);
    } else if (!/[\s:,]/.test(unit) && !(unit === '"' && isKey(at))) note(end);
    at = end;
  }
  return whole.end === 0 ? null : JSON.parse(json.slice(0, whole.end) + whole.closers);
}

/** The text with its unfinished string, which begins at `at`, closed behind the last complete character. */
function closedString(json: string, at: number): string {
  const [whole] = /^"(?:[^"\\\p{Cc}]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/u.exec(json.slice(at))!;
  return `${json.slice(0, at)}${whole}"`;
}

/** Length of the string, number, word, bracket or space at a position; 0 if it is incomplete. */
function tokenLength(json: string, at: number): number {
  const token = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\]:,]|\s+/sy;
  token.lastIndex = at;
  return token.exec(json)?.[0].length ?? 0;
}
