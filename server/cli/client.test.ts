import { expect, test } from "bun:test";
import { listModels, ServerError, streamChat } from "./client.ts";

/** Texts and error of a client whose server sends this response and closes the connection. */
async function told(head: string, body: string): Promise<readonly [texts: string, error: unknown]> {
  const answer = (socket: Bun.Socket): void => {
    socket.write(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n${body}`);
    socket.end();
  };
  using server = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data: answer } });
  const target = { url: `http://127.0.0.1:${server.port}`, apiKey: null };
  let texts = "";
  try {
    for await (const event of streamChat(target, {}, new AbortController().signal))
      if (event.kind === "text") texts += event.text;
  } catch (error) {
    return [texts, error];
  }
  return [texts, null];
}

const chunk = `data: ${JSON.stringify({ choices: [{ delta: { content: "Once" } }] })}\n\n`;

test("an answer that breaks off is said to, after its text", async () => {
  const brokenOff = new ServerError(0, "The server broke off its answer.");
  expect(await told("connection: close", chunk)).toEqual(["Once", brokenOff]);
  // The text may be absent, because the runtime may report the closed connection first.
  expect(await told("content-length: 9999", chunk)).toEqual([expect.any(String), brokenOff]);
  expect(await told("connection: close", `${chunk}data: [DONE]\n\n`)).toEqual(["Once", null]);
});

test("what is no server of this kind is said to be none", async () => {
  for (const body of ["<html>", "null", '{"models":[]}']) {
    using server = Bun.serve({ port: 0, fetch: () => new Response(body) });
    expect(listModels({ url: server.url.origin, apiKey: null })).rejects.toThrow(
      `What answers at ${server.url.origin}/v1 is no OpenAI-compatible server.`,
    );
  }
});
