import { expect, test } from "bun:test";
import { atOnce } from "../../../base/time-slice.ts";
import { startTestServer } from "../../../tests/e2e/server.ts";
import { noDefaults } from "../../../tests/support/served-model.ts";
import { defaultHttpLimits } from "../../http/limits.ts";
import { UsageLedger } from "../../usage/ledger.ts";
import { Fields } from "../fields.ts";
import type { Exchange } from "../respond.ts";
import { answerProgram } from "./answer.ts";
import { ProgramReader } from "./schema.ts";
import { valueOfWhenSettled } from "./variables.ts";

/** The client may disconnect while the server parses the body. */
test("a client that is gone before its program begins has nothing computed, and waits for no value", async () => {
  const server = startTestServer();
  const { generator, lifecycle, programs } = server;
  const telemetry = {
    observeRequest: () => {},
    countFinished: () => {},
    countTokens: () => {},
    log: null,
    ledger: new UsageLedger(null),
  };
  const exchange: Exchange = {
    requestId: "",
    signal: AbortSignal.abort(),
    reply: null as never, // no answer here is a stream
    arrivedMs: 0,
    tenant: "",
    sessionName: null,
    services: {
      generator,
      lifecycle,
      telemetry,
      cacheSaltFor: (_, salt) => salt,
      recordCache: null,
      recordRequest: null,
    },
    limits: defaultHttpLimits,
  };
  const reader = new ProgramReader({
    names: ["demo"],
    contextMax: 1024,
    vocabSize: 1024,
    tokensOf: () => [],
    generationDefaults: noDefaults,
  });
  const calls = [{ prompt: "Once", output: "story", max_tokens: 500, ignore_eos: true }];
  await answerProgram(exchange, programs, atOnce(reader.request(new Fields({ calls }))));
  await server.settled();
  expect([server.fleet.loads()[0]!.generatedTokensTotal, programs.active]).toEqual([0, 0]);

  const hosted = programs.open({ tenant: "", cacheSalt: "", adapter: 0 });
  hosted.add({ variables: [{ name: "later", value: null }], nodes: [] });
  expect(valueOfWhenSettled(hosted, "later", exchange, 60_000)).rejects.toThrow("later is not there");
  programs.close(hosted, "over");
  await server.close();
});
