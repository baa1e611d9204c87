/** Command `bunting chat` in a terminal: message boundaries and exit. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { TerminalProgram } from "./program.ts";
import { startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
/** Last prompt that the model received. */
let asked = "";
beforeAll(() => {
  server = startTestServer({
    template: "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    answers: (prompt) => {
      asked = prompt;
      return ["Understood."];
    },
  });
});
afterAll(() => server.close());

async function chat(): Promise<TerminalProgram> {
  const program = new TerminalProgram(["chat", "--url", server.origin]);
  await program.outputMatch(/> /);
  return program;
}

/** Presses Enter and waits for the answer. */
async function enter(program: TerminalProgram, answers: number): Promise<void> {
  program.press("\r");
  await program.outputMatch(new RegExp(`(Understood\\.[^]*cached[^]*> [^]*){${answers}}`));
}

test("lines that are pasted are one message, with what is typed after them", async () => {
  const program = await chat();
  expect(program.output).toContain("\x1b[?2004h");
  program.press("\x1b[200~one\r  /two\rthree\x1b[201~");
  await program.outputMatch(/three/);
  program.press(" and more");
  await enter(program, 1);
  expect(asked).toBe("<user>one\n  /two\nthree and more");
  // The next message starts empty.
  program.press("four");
  await enter(program, 2);
  expect(asked).toEndWith("<assistant>Understood.<user>four");
  program.press("/exit\r");
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toContain("\x1b[?2004l");
});

test("a line that ends with a backslash goes on in the next one", async () => {
  const program = await chat();
  program.press("one\\\rtwo");
  await enter(program, 1);
  expect(asked).toBe("<user>one\ntwo");
  program.press("\x04");
  expect(await program.exitCode()).toBe(0);
});

test("Ctrl-C leaves where there is no answer to stop", async () => {
  const program = await chat();
  program.press("\x03");
  expect(await program.exitCode()).toBe(130);
});
