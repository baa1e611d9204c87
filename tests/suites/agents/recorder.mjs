/**
 * Proxy in front of the server: keeps each request's body and answer in a folder, and reports which ones
 * ended with an error.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { join } from "node:path";

/** Name of the token limit field, by wire format. */
const limitOf = {
  "/v1/responses": "max_output_tokens",
  "/v1/messages": "max_tokens",
  "/v1/chat/completions": "max_completion_tokens",
};

/** Listens on a port of its own. `log` is a folder. */
export async function startRecorder(target, log) {
  mkdirSync(log, { recursive: true });
  const { hostname, port } = new URL(target);
  const exchanges = [];
  let tokensMax = null;

  /** Returns the body with the answer limited to `tokensMax` tokens, as an operator may do. */
  const limited = (path, body) => {
    const field = limitOf[path.replace(/\?.*/, "")];
    if (tokensMax === null || field === undefined) return body;
    return Buffer.from(JSON.stringify({ ...JSON.parse(body), [field]: tokensMax }));
  };

  const server = createServer(async (incoming, answer) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const { method, url } = incoming;
    const body = limited(url, Buffer.concat(chunks));
    const headers = { ...incoming.headers, ...(body.length > 0 ? { "content-length": body.length } : {}) };
    delete headers["transfer-encoding"];
    const number = String(exchanges.length).padStart(3, "0");
    const exchange = { method, path: url, status: null, answer: "", file: join(log, `${number}.json`) };
    exchanges.push(exchange);
    writeFileSync(exchange.file, body);
    const outgoing = request({ hostname, port, method, path: url, headers }, (incomingAnswer) => {
      exchange.status = incomingAnswer.statusCode;
      exchange.ignored = incomingAnswer.headers["x-bunting-ignored"];
      answer.writeHead(incomingAnswer.statusCode, incomingAnswer.headers);
      const parts = [];
      incomingAnswer.on("data", (part) => parts.push(part));
      incomingAnswer.on("end", () => {
        exchange.answer = Buffer.concat(parts).toString();
        writeFileSync(
          join(log, `${number}.answer.txt`),
          `${method} ${url} ${exchange.status} ignored: ${exchange.ignored}\n${exchange.answer}`,
        );
      });
      incomingAnswer.pipe(answer);
    });
    outgoing.on("error", () => answer.destroy());
    answer.on("close", () => outgoing.destroy());
    outgoing.end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

  return {
    url: `http://127.0.0.1:${server.address().port}`,
    exchanges,
    /** Counts the answers requested from a model. */
    turns: () => exchanges.filter(({ path }) => limitOf[path.replace(/\?.*/, "")] !== undefined).length,
    /** True if an answer ended at its token limit. */
    hasCut: () =>
      exchanges.some(({ answer }) =>
        /"finish_reason":"length"|"stop_reason":"max_tokens"|"reason":"max_output_tokens"/.test(answer),
      ),
    /** Returns requests without an answer, or with an error. */
    failures: () =>
      exchanges
        .filter(({ status }) => status === null || status >= 400)
        .map(
          ({ method, path, status, answer, file }) =>
            `${method} ${path}: ${status} ${answer.slice(0, 300)} (${file})`,
        ),
    /** Limits the tokens of answers; null: as the client requests. */
    limitAnswers(max) {
      tokensMax = max;
    },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
