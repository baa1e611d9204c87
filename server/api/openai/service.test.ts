import { describe, expect, test } from "bun:test";
import { ApiError } from "../../http/errors.ts";
import { Fields } from "../fields.ts";
import { targetsOf } from "../targets.ts";
import { serviceOf } from "./service.ts";

const asked = (body: Readonly<Record<string, unknown>>, headers: Readonly<Record<string, string>> = {}) =>
  serviceOf(new Fields(body), targetsOf(new Headers(headers)));

const usual = { objective: "latency", tbtMs: null, ttftMs: null, priority: 0 } as const;

test("what is asked for is what is served, and the tier is named when one was asked for", () => {
  expect([
    asked({}),
    asked({ service_tier: "auto" }),
    asked({ service_tier: "default" }),
    asked({ service_tier: "flex" }),
    asked({ service_tier: "priority" }),
    asked({ service_tier: "priority", priority: 4 }),
    asked({ priority: -3 }),
    asked({ service_tier: null }, { "x-bunting-tbt-ms": "25", "x-bunting-ttft-ms": "900.5" }),
    asked({ service_tier: "priority" }, { "x-slo-tpot-ms": "40", "x-slo-ttft-ms": "500" }),
  ]).toEqual([
    { tier: null, service: usual },
    { tier: "default", service: usual },
    { tier: "default", service: usual },
    { tier: "flex", service: { ...usual, objective: "throughput" } },
    { tier: "priority", service: { ...usual, priority: -1 } },
    { tier: "priority", service: { ...usual, priority: 4 } },
    { tier: null, service: { ...usual, priority: -3 } },
    { tier: null, service: { ...usual, tbtMs: 25, ttftMs: 900.5 } },
    { tier: "priority", service: { ...usual, priority: -1, tbtMs: 40, ttftMs: 500 } },
  ]);
});

describe("what cannot be meant is refused", () => {
  const refused: [body: object, headers: Readonly<Record<string, string>>, message: string][] = [
    [
      { service_tier: "scale" },
      {},
      'service_tier must be auto, default, flex or priority, but "scale" was given',
    ],
    [{ service_tier: 1 }, {}, "service_tier must be auto, default, flex or priority, but 1 was given"],
    [{ priority: 0.5 }, {}, "priority must be an integer from -1000000 to 1000000, but 0.5 was given"],
    [
      {},
      { "x-bunting-tbt-ms": "soon" },
      'the header x-bunting-tbt-ms must be milliseconds from 1 to 60000, but is "soon"',
    ],
    [
      {},
      { "x-slo-ttft-ms": "0" },
      'the header x-slo-ttft-ms must be milliseconds from 1 to 600000, but is "0"',
    ],
    [
      {},
      { "x-bunting-tbt-ms": "20", "x-slo-tpot-ms": "30" },
      "the headers x-bunting-tbt-ms and x-slo-tpot-ms say 20 and 30: give one",
    ],
    [
      { service_tier: "flex" },
      { "x-bunting-tbt-ms": "20" },
      "service_tier flex is for answers that nobody reads as they come: it takes no x-bunting-tbt-ms or x-slo-tpot-ms",
    ],
  ];
  test.each(refused)("%j with %j", (body, headers, message) => {
    expect(() => asked({ ...body }, headers)).toThrow(new ApiError(400, "invalid_request_error", message));
  });
});
