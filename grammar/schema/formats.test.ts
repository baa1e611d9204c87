/** Formats: allowed and rejected texts, all real, on which Ajv agrees. */
import { expect, test } from "bun:test";
import { allows } from "../../tests/support/schema-oracle.ts";
import { compileConstraint } from "../compile.ts";
import { Parser, type ParseState } from "../parser/parser.ts";
import { Regexes } from "../regex/regexes.ts";

const texts: Readonly<Record<string, readonly [yes: readonly string[], no: readonly string[]]>> = {
  date: [
    ["2024-02-29", "1999-12-31", "2000-02-29"],
    ["2023-02-29", "1999-13-01", "1999-4-01", "1900-02-29", ""],
  ],
  time: [
    ["23:59:59Z", "08:30:06.283185Z", "00:00:00+02:00"],
    ["24:00:00Z", "08:30:60", "8:30:06Z", "08:30:06"],
  ],
  "date-time": [
    ["1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00"],
    ["1990-02-31T15:59:59Z", "1990-02-28 at noon", "1985-04-12T23:20:50"],
  ],
  duration: [
    ["P4Y", "PT0S", "P1M", "P4DT12H30M5S", "P2W"],
    ["P", "PT", "4D", "P1YT", "PT1D", "P1Y2W"],
  ],
  uuid: [
    ["2EB8AA08-aa98-11ea-B4AA-73B441D16380", "00000000-0000-0000-0000-000000000000"],
    ["2eb8aa08-aa98-11ea-b4aa73b441d16380", "2eb8aa08-aa98-11ea-b4ga-73b441d16380"],
  ],
  ipv4: [
    ["192.168.0.1", "0.0.0.0", "255.255.255.255"],
    ["256.1.1.1", "127.0.0", "127.0.0.0.1", "0x7f.0.0.1"],
  ],
  ipv6: [
    ["::1", "::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::ffff:192.168.0.1"],
    ["12345::", "1:2:3:4:5:6:7", "::1::2", "1:2:3:4:5:6:7:8:9", "::laptop"],
  ],
  hostname: [
    ["www.example.com", "localhost", "a-b.c0"],
    ["-bad.example", "bad-.example", "with_underscore", "", "a..b"],
  ],
  email: [
    ["joe.bloggs@example.com", "te~st+tag@example.org"],
    ["2962", "joe@", "@example.com", ".a@example.com", "a..b@example.com"],
  ],
  uri: [
    [
      "http://foo.bar/?baz=qux#quux",
      "urn:oasis:names",
      "mailto:John.Doe@example.com",
      "ftp://[::1]:21/a%20b",
    ],
    ["//foo.bar/", "/abc", "http:// no.spaces", "\\\\WINDOWS\\share", "bar,baz:foo"],
  ],
};

test.each(Object.entries(texts))("%s", (format, [yes, no]) => {
  const schema = { type: "string", format };
  const { grammar } = compileConstraint({ kind: "schema", schema, layout: "compact" });
  const parser = Parser.of(grammar, new Regexes());
  const isAllowed = (text: string): boolean => {
    let state: ParseState | null = parser.start;
    for (const byte of new TextEncoder().encode(JSON.stringify(text))) {
      state = parser.next(state, byte);
      if (state === null) return false;
    }
    return state.mayEnd;
  };
  const told = (of: (text: string) => boolean): string[] => [...yes, ...no].filter(of);
  expect(told(isAllowed)).toEqual([...yes]);
  expect(told((text) => allows(schema, text))).toEqual([...yes]);
});
