/** Limits of a rendering, and its treatment of stand-ins. Comparisons with Python are in probes.test.ts. */
import { describe, expect, test } from "bun:test";
import { defaultLimits, type RenderLimits } from "./budget.ts";
import { JinjaTemplate } from "./jinja-template.ts";
import { fromJavaScript, readJson } from "./json.ts";
import type { Value } from "./values.ts";

const limits: RenderLimits = { stepsMax: 20_000, lengthMax: 100_000, textMax: 1_000_000, depthMax: 200 };

function render(
  source: string,
  variables: Readonly<Record<string, Value>> = {},
  standIns: ReadonlyMap<string, string> = new Map(),
): string {
  const context = { variables: new Map(Object.entries(variables)), now: new Date(0), limits, standIns };
  return new JinjaTemplate(source).render(context);
}

describe("a template that does not end or grows stops at a limit that the error names", () => {
  const grown = (piece: string) =>
    `{% set ns = namespace(x=${piece}) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}`;
  const cases: readonly (readonly [string, string])[] = [
    ["{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "20000 operations"],
    [
      "{% for i in range(9999) %}{% for j in range(9999) if false %}{% endfor %}{% endfor %}",
      "20000 operations",
    ],
    [grown("'ab'"), "100000 characters"],
    [grown("[1]"), "20000 operations"],
    ["{{ 'x' * 10 ** 12 }}", "100000 characters"],
    ["{{ [1] * 10 ** 12 }}", "20000 operations"],
    ["{{ 'x' | center(10 ** 12) }}", "100000 characters"],
    ["{{ 'x'.ljust(10 ** 12) }}", "100000 characters"],
    ["{{ 'x'.zfill(10 ** 12) }}", "100000 characters"],
    ["{{ '%1000000d' % 1 }}", "100000 characters"],
    ["{{ '{:1000000}'.format(1) }}", "100000 characters"],
    ["{{ ('a' * 1000).replace('a', 'b' * 1000) }}", "100000 characters"],
    ["{{ ('a' * 1000).replace('', 'b' * 1000) }}", "100000 characters"],
    ["{{ ('a' * 1000) | join('b' * 1000) }}", "100000 characters"],
    ["{{ ('a\\n' * 1000) | indent('b' * 1000) }}", "100000 characters"],
    ["{{ ('\\t' * 1000).expandtabs(1000) }}", "100000 characters"],
    ["{% for i in range(99) %}{{ 'x' * 9999 }}{% endfor %}", "100000 characters"],
    ["{% for i in range(9999) %}{% set x = 'x' * 9999 %}{% endfor %}", "1000000 characters in all"],
    ["{{ 9 ** (9 ** 9) }}", "65536 bits"],
    [
      "{% set ns = namespace(x=(1, 2)) %}{% for i in range(99) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
      "as a key",
    ],
    [
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "20000 operations",
    ],
    [
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
      "20000 operations",
    ],
    [
      "{% set x = 'ab🐦' * 9999 %}{% for i in range(9999) %}{% if x[i] == 'q' %}{% endif %}{% endfor %}",
      "20000 operations",
    ],
    ["{% set x = 'ab' * 40000 %}{% for i in range(999) %}{{ 'q' in x }}{% endfor %}", "20000 operations"],
    ["{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"],
    ["{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "too deep"],
    [`{{ ${"-".repeat(9999)}1 }}`, "too deep"],
    [`{{ ${"(".repeat(9999)}1${")".repeat(9999)} }}`, "levels deep"],
    ["{% if true %}".repeat(9999), "levels deep"],
  ];
  for (const [source, sentence] of cases) {
    test(source.slice(0, 100), () => expect(() => render(source)).toThrow(sentence));
  }

  test("a value nested deeper than the stack is an error too", () => {
    const source =
      "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
    const context = { variables: new Map<string, Value>(), now: new Date(0), limits: defaultLimits };
    expect(() => new JinjaTemplate(source).render(context)).toThrow("too deep");
  });
});

describe("stand-ins", () => {
  const standIns = new Map([["\ufdd0", "<"]]);
  const seen = (source: string, x: string): string => render(source, { x }, standIns);

  test.each([
    ["{{ '<b>' in x }}", "a\ufdd0b>c", "True"],
    ["{{ x.split('<b>') | length }}", "a\ufdd0b>c", "2"],
    ["{{ x.split('<b>')[1] }}", "a\ufdd0b>c\ufdd0", "c\ufdd0"],
    ["{{ x.startswith('<b>') }}", "\ufdd0b>", "True"],
    ["{{ x.replace('<b>', '') }}", "a\ufdd0b>c", "ac"],
    ["{{ x == '<b>' }}{{ x is eq '<b>' }}", "\ufdd0b>", "TrueTrue"],
    ["{{ x.find('<') }}{{ x.count('<') }}", "a\ufdd0b", "11"],
    ["{{ x.lstrip('<b') }}", "\ufdd0ba", "a"],
    ["{{ x.removeprefix('<') }}{{ x.partition('<')[2] }}", "\ufdd0b", "bb"],
    ["{{ x }}{{ x | upper }}{{ x[0] }}", "\ufdd0b", "\ufdd0b\ufdd0B\ufdd0"],
  ])("are seen through where texts are compared, and kept: %s", (source, x, wanted) => {
    expect(seen(source, x)).toBe(wanted);
  });
});

describe("a long text takes as long as its length says", () => {
  const long: readonly (readonly [string, string])[] = [
    ["{{ x | int }}", `${"9".repeat(500_000)}x`],
    ["{{ x | float }}", `${"9".repeat(500_000)}x`],
    ["{{ x | striptags | length }}", "<".repeat(500_000)],
    ["{{ x.rsplit('a') | length }}", "a".repeat(500_000)],
    ["{{ x.strip() | length }}", `${" ".repeat(500_000)}x`],
    ["{{ x | tojson | length }}", "\u0001".repeat(500_000)],
  ];
  for (const [source, x] of long) {
    test(source, () => {
      const context = {
        variables: new Map<string, Value>([["x", x]]),
        now: new Date(0),
        limits: defaultLimits,
      };
      expect(new JinjaTemplate(source).render(context)).toMatch(/^[\d.]+$/);
    });
  }

  test("a long string in JSON", () => {
    const text = 'a"\\'.repeat(500_000);
    expect(readJson(JSON.stringify([text]))).toEqual([text]);
  });
});

describe("JSON keeps what JavaScript loses", () => {
  const json =
    '{"10": 1.0, "2": [-2e-7, 1E5, 12345678901234567890, 1.50, -0.0, 1e400], "a": {"1": null, "0": true}}';

  test("floats stay floats, large integers exact, and keys in their order", () => {
    expect(render("{{ x | tojson }}", { x: readJson(json) })).toBe(
      '{"10": 1.0, "2": [-2e-07, 100000.0, 12345678901234567890, 1.5, -0.0, Infinity], "a": {"1": null, "0": true}}',
    );
  });

  test("where the text of an object is known, it is read instead of the object", () => {
    const inner = JSON.parse(json) as object;
    const value = fromJavaScript({ a: [inner] }, (object) => (object === inner ? json : undefined));
    expect(render("{{ x.a[0].keys() | join(',') }}", { x: value })).toBe("10,2,a");
  });
});
