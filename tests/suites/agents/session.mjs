/** Sessions of agents: acts of acts.ts, each group in a process of its own that resumes the session. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { makeTool, modelsOf, notesOf, openChat, startOpenWebui } from "./open-webui.mjs";
import { startRecorder } from "./recorder.mjs";
import { settingsOf } from "./settings.mjs";

const secondsMax = 300;

/** Makes a PNG of `side` × `side` red pixels. */
function picture(side) {
  const chunk = (type, data) => {
    const named = Buffer.concat([Buffer.from(type), data]);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(data.length);
    const sum = Buffer.alloc(4);
    sum.writeUInt32BE(crc32(named));
    return Buffer.concat([length, named, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side, 0);
  head.writeUInt32BE(side, 4);
  head.set([8, 2], 8);
  const row = Buffer.concat([Buffer.of(0), Buffer.alloc(side * 3, Buffer.of(255, 0, 0))]);
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", head),
    chunk("IDAT", deflateSync(Buffer.concat(Array(side).fill(row)))),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

/** Runs a command to its end; returns its exit code and all output. */
function run([command, ...args], input, options) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { ...options, timeout: secondsMax * 1000 });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (text) => {
        output += text;
      });
    child.on("error", (error) => resolve({ code: error.message, output }));
    child.on("close", (code, signal) => resolve({ code: code ?? signal, output }));
    child.stdin.on("error", () => {});
    child.stdin.end(input);
  });
}

/** Files of the working folder after each act; null: the file must not exist. */
const filesAfter = {
  write: { "greeting.txt": /^hello$/, "count.txt": /^\s*5\s*$/ },
  parallel: { "one.txt": /^one$/, "two.txt": /^two$/, "three.txt": /^three$/ },
  look: { "seen.txt": /^seen$/ },
  cut: { "much.txt": null },
  on: { "less.txt": /^word 0, .*word 9\n?$/ },
  study: { "study.txt": /^studied$/ },
  delegate: { "first/study.txt": /^studied$/, "second/study.txt": /^studied$/ },
  end: { "both.txt": /^onetwo$/ },
};
const filesOf = (act) => {
  const note = /^note(\d+)$/.exec(act)?.[1];
  return note === undefined
    ? (filesAfter[act] ?? {})
    : { [`note${note}.txt`]: new RegExp(`^note ${note}\n$`) };
};

const fileIn = (path) => (existsSync(path) ? readFileSync(path, "utf8") : null);

/** Token limit of answers in the act `cut`: too low for its call. */
const cutTokens = 300;
const turnsMin = 20;

/** Plays the acts of an agent that is a command. */
async function playCommands({ agent, recorder, home, work, bin, log }) {
  const failures = [];
  const settings = settingsOf(agent.title, recorder.url);
  for (const [name, text] of Object.entries(settings.files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text);
  }
  writeFileSync(join(work, "picture.png"), picture(16));
  for (const [i, played] of agent.acts.entries()) {
    const [act] = [played].flat();
    const message = [played]
      .flat()
      .map((name) => `Act ${name} in ${work}.\n`)
      .join("");
    const { args, input = "", env } = agent.start({ act, message, resumes: i > 0 });
    recorder.limitAnswers(act === "cut" ? cutTokens : null);
    const { code, output } = await run([...settings.command, ...args], input, {
      cwd: work,
      env: { PATH: `${bin}:${process.env.PATH}`, HOME: home, ...settings.env, ...env },
    });
    writeFileSync(join(log, `${act}.txt`), output);
    if (code !== (act === "cut" ? (agent.cutExit ?? 0) : 0)) failures.push(`${act}: exit code ${code}`);
  }
  for (const [name, text] of agent.acts.flat().flatMap((act) => Object.entries(filesOf(act)))) {
    const found = fileIn(join(work, name));
    if (text === null ? found !== null : found === null || !text.test(found))
      failures.push(`${name} holds ${JSON.stringify(found)}`);
  }
  return failures;
}

/** Plays the acts of Open WebUI, one message each. */
async function playChat({ agent, recorder, home, bin, log }) {
  const failures = [];
  const { command, env } = settingsOf(agent.title, recorder.url);
  const path = `${bin}:${process.env.PATH}`;
  const web = await startOpenWebui(command, { ...env, PATH: path, HOME: home }, join(log, "server.txt"));
  try {
    if (!(await modelsOf(web)).includes("demo")) throw new Error("Open WebUI has not found the model");
    const say = openChat(web, { toolIds: [await makeTool(web)] });
    for (const act of agent.acts) {
      recorder.limitAnswers(act === "cut" ? cutTokens : null);
      const { content } = await say("demo", `Act ${act} in chat.`);
      if (act !== "cut" && !content.includes(`The act is played: ${act}.`))
        failures.push(`${act}: the answer is ${JSON.stringify(content)}`);
    }
    const notes = await notesOf(web);
    for (const title of ["chat/greeting.txt", "chat/less.txt"])
      if (!notes.includes(title)) failures.push(`the note ${title} is not written`);
  } finally {
    await web.close();
  }
  return failures;
}

/**
 * Plays an agent's session on the server at `target`; returns its turns and failures. `log` is a folder for
 * requests, answers and the agent's output.
 */
export async function playSession(agent, target, bin, log) {
  const home = mkdtempSync(join(tmpdir(), "bunting-agent-"));
  const work = join(home, "work");
  mkdirSync(work);
  const recorder = await startRecorder(target, log);
  try {
    const play = agent.start === undefined ? playChat : playCommands;
    const failures = await play({ agent, recorder, home, work, bin, log }).catch((error) => [String(error)]);
    failures.push(...recorder.failures());
    if (!recorder.hasCut()) failures.push("no answer was cut");
    const turns = recorder.turns();
    if (turns < turnsMin) failures.push(`only ${turns} turns`);
    return { turns, failures };
  } finally {
    recorder.close();
    rmSync(home, { recursive: true, force: true });
  }
}
