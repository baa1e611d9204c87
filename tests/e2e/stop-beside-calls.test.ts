/** Stop strings apply to text alone, so that they never truncate a tool call. On every wire format. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { post, startTestServer, type TestServer } from "./server.ts";
import { wires } from "./wires.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const city = "New Paris city";
const call = `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
const answers = [call, `I look at Paris.\n${call}`, '{"city": "Paris"}'];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const openaiTool = { type: "function", function: { name: "weather", parameters } };

/**
 * Tools and a forcing tool choice, by route; and the fields of a body or of stream events that hold
 * arguments.
 */
const formats: Readonly<Record<string, { readonly tools: object; readonly forced: object }>> = {
  "/v1/chat/completions": { tools: { tools: [openaiTool] }, forced: { tool_choice: "required" } },
  "/v1/responses": {
    tools: { tools: [{ type: "function", name: "weather", parameters }] },
    forced: { tool_choice: "required" },
  },
  "/v1/messages": {
    tools: { tools: [{ name: "weather", input_schema: parameters }] },
    forced: { tool_choice: { type: "any" } },
  },
  "/api/chat": { tools: { tools: [openaiTool] }, forced: {} },
};

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ answers, template });
});
afterEach(() => server.settled());
afterAll(() => server.close());

/** Returns all values under these names, at any depth. */
function valuesAt(value: unknown, names: readonly string[]): unknown[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, one]) =>
    names.includes(name) ? [one] : valuesAt(one, names),
  );
}

const asText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

describe.each(Object.keys(formats))("%s", (path) => {
  const wire = wires.find((one) => one.path === path)!;
  const { tools, forced } = formats[path]!;
  const ask = async (
    seed: number,
    stop: readonly string[],
    more: object,
    stream: boolean,
  ): Promise<string> => {
    const body = wire.body({
      content: "Weather?",
      max: 200,
      stop,
      drawing: { seed },
      more: { ...tools, ...more },
    });
    const response = await post(server, path, { ...body, stream });
    expect(response.status).toBe(200);
    return response.text();
  };

  test.each([
    ["auto", {}],
    ["forced", forced],
  ])("a call is whole, told whole and in a stream: %s", async (_, more) => {
    const stop = ["Paris", "city", "weather", "\n", "}"];
    const whole: unknown = JSON.parse(await ask(0, stop, more, false));
    const [told] = valuesAt(whole, ["arguments", "input"]);
    expect(typeof told === "string" ? JSON.parse(told) : told).toEqual({ city });
    expect(JSON.stringify(whole)).toMatch(/"(tool_calls|tool_use|completed|stop)"/);

    const lines = (await ask(0, stop, more, true)).split("\n").map((line) => line.replace(/^data: /, ""));
    const events = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line) as object);
    // Responses report arguments in deltas and then completely.
    const deltas = events.filter((event) => !("type" in event) || /delta/.test(String(event.type)));
    const pieces = valuesAt(deltas, ["arguments", "partial_json", "delta"]).flatMap((value) =>
      typeof value === "object" && !("city" in value!)
        ? valuesAt(value, ["arguments", "partial_json"])
        : [value],
    );
    expect(JSON.parse(pieces.map(asText).join(""))).toEqual({ city });
  });

  test("text before a call is cut, and the call with it", async () => {
    const whole: unknown = JSON.parse(await ask(1, ["Paris"], {}, false));
    expect(wire.said(whole).text).toBe("I look at ");
    expect(valuesAt((whole as { output?: object }).output ?? whole, ["arguments", "input"])).toEqual([]);
  });

  test("the text of a form is cut", async () => {
    const format = { type: "object", properties: { city: { const: "Paris" } }, required: ["city"] };
    const more = path === "/api/chat" ? { format } : { guided_json: format };
    const body = wire.body({ content: "City?", max: 200, stop: ["ris"], drawing: { seed: 2 }, more });
    const whole: unknown = await (await post(server, path, body)).json();
    expect(wire.said(whole).text).toBe('{"city": "Pa');
  });
});
