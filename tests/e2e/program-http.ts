/** HTTP helpers for tests of programs. */
import { afterEach, expect } from "bun:test";
import { post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";

/** Starts a server per test, and checks at its end that no program is left. */
export function cleanServers(): (options?: TestServerOptions) => TestServer {
  let servers: TestServer[] = [];
  afterEach(async () => {
    for (const server of servers) {
      await server.settled();
      expect(server.programs.active).toBe(0);
      await server.close();
    }
    servers = [];
  });
  return (options = {}) => {
    const server = startTestServer(options);
    servers.push(server);
    return server;
  };
}

/** Fields of a program's body that tests read. */
export interface ProgramBody {
  readonly id: string;
  readonly variables: Readonly<Record<string, VariableBody>>;
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly explain: {
    readonly waited_ms: number;
    readonly calls: readonly {
      readonly name: string;
      readonly objective: string;
      readonly gang: number | null;
      readonly waited_for: string | null;
      readonly ready_ms: number;
      readonly placed_ms: number;
      readonly started_ms: number;
      readonly first_token_ms: number;
      readonly ended_ms: number;
      readonly tokens: Readonly<Record<"prompt" | "found" | "warmed" | "output", number>>;
    }[];
    readonly critical_path: readonly {
      readonly name: string;
      readonly from_ms: number;
      readonly to_ms: number;
    }[];
  };
}

export interface VariableBody {
  readonly name: string;
  readonly state: string;
  readonly value?: string | readonly string[];
  readonly error?: {
    readonly code: string;
    readonly message: string;
    readonly origin: string;
    readonly path: readonly string[];
  };
}

export async function run(server: TestServer, body: object): Promise<ProgramBody> {
  const response = await post(server, "/v1/programs", body);
  const answer = await response.json();
  expect([response.status, answer]).toEqual([200, answer]);
  return answer as ProgramBody;
}

export async function valuesOf(server: TestServer, body: object): Promise<Record<string, unknown>> {
  const { variables } = await run(server, body);
  return Object.fromEntries(Object.values(variables).map(({ name, value }) => [name, value]));
}

/** Makes a call with one message and one answer; `seed` picks the text on a server with scripted answers. */
export const ask = (content: string, output: string, seed: number, more: object = {}): object => ({
  messages: [{ role: "user", content }],
  outputs: { [output]: { ...more } },
  seed,
});

export interface Event {
  readonly type: string;
  readonly text?: string;
}

export async function eventsOf(response: Response): Promise<readonly Event[]> {
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  const frames = (await response.text()).split("\n\n").filter((frame) => frame.startsWith("event: "));
  return frames.map((frame) => {
    const [name, data] = frame.split("\n");
    const event = JSON.parse(data!.slice("data: ".length)) as Event;
    expect(name).toBe(`event: ${event.type}`);
    return event;
  });
}
