/**
 * Scripted answers for sessions of coding agents. A user's message names an act and its folder, `Act write in
 * /folder.`; the number of answers since then is the step. All agents' tools do the same deeds.
 */

/** Deeds in terms of an agent's tools: the tool and its arguments. Paths are absolute. */
interface Hands {
  write(path: string, text: string): Deed;
  read(path: string): Deed;
  look(path: string): Deed;
  run(command: string): Deed;
  /** Has a subagent do something, if the agent has subagents. */
  delegate?(prompt: string): Deed;
}

/** Quotes a text for a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Deeds by agent, keyed by a tool that only that agent offers. */
const handsBy: Readonly<Record<string, Hands>> = {
  // Codex
  exec_command: {
    write: (path, text) => ["exec_command", { cmd: `printf %s ${quoted(text)} > ${path}` }],
    read: (path) => ["exec_command", { cmd: `cat ${path}` }],
    look: (path) => ["view_image", { path }],
    run: (cmd) => ["exec_command", { cmd }],
  },
  // Qwen Code
  run_shell_command: {
    write: (file_path, content) => ["write_file", { file_path, content }],
    read: (file_path) => ["read_file", { file_path }],
    look: (file_path) => ["read_file", { file_path }],
    run: (command) => ["run_shell_command", { command, description: "Runs a command", is_background: false }],
  },
  // Continue
  Checklist: {
    write: (filepath, content) => ["Write", { filepath, content }],
    read: (filepath) => ["Read", { filepath }],
    look: (filepath) => ["Read", { filepath }],
    run: (command) => ["Bash", { command }],
  },
  // Claude Code
  Bash: {
    write: (file_path, content) => ["Write", { file_path, content }],
    read: (file_path) => ["Read", { file_path }],
    look: (file_path) => ["Read", { file_path }],
    run: (command) => ["Bash", { command, description: "Runs a command" }],
    delegate: (prompt) => [
      "Agent",
      { description: "Plays an act", prompt, subagent_type: "general-purpose", run_in_background: false },
    ],
  },
  // Open WebUI, which has notes and a tool of the suite
  add_numbers: {
    write: (title, content) => ["write_note", { title, content }],
    read: (query) => ["search_notes", { query }],
    look: (query) => ["search_notes", { query }],
    run: () => ["add_numbers", { first: 3, second: 4 }],
  },
  // Copilot CLI
  read_bash: {
    write: (path, file_text) => ["create", { path, file_text }],
    read: (path) => ["view", { path }],
    look: (path) => ["view", { path }],
    run: (command) => ["bash", { command, description: "Runs a command" }],
  },
  // opencode
  todowrite: {
    write: (filePath, content) => ["write", { filePath, content }],
    read: (filePath) => ["read", { filePath }],
    look: (filePath) => ["read", { filePath }],
    run: (command) => ["bash", { command, description: "Runs a command" }],
  },
  // Pi
  bash: {
    write: (path, content) => ["write", { path, content }],
    read: (path) => ["read", { path }],
    look: (path) => ["read", { path }],
    run: (command) => ["bash", { command }],
  },
};

const words = (count: number): string => Array.from({ length: count }, (_, i) => `word ${i}`).join(", ");

type Deed = readonly [tool: string, args: Readonly<Record<string, unknown>>];

/** Step of an act: a text, then deeds. */
type Step = (hands: Hands, folder: string) => readonly [string, ...Deed[]];

/** Steps of each act; the last one is text. */
const acts: Readonly<Record<string, readonly Step[]>> = {
  write: [
    (hands, folder) => ["I write it.", hands.write(`${folder}/greeting.txt`, "hello")],
    (hands, folder) => ["", hands.read(`${folder}/greeting.txt`)],
    (hands, folder) => ["", hands.run(`wc -c < ${folder}/greeting.txt > ${folder}/count.txt`)],
    () => ["The act is played: write."],
  ],
  parallel: [
    (hands, folder) => [
      "",
      ...["one", "two", "three"].map((name) => hands.run(`printf ${name} > ${folder}/${name}.txt`)),
    ],
    (hands, folder) => [
      "Now I read them.",
      hands.read(`${folder}/one.txt`),
      hands.read(`${folder}/missing.txt`),
    ],
    () => ["The act is played: parallel."],
  ],
  look: [
    (hands, folder) => ["I look at it.", hands.look(`${folder}/picture.png`)],
    (hands, folder) => ["", hands.run(`printf seen > ${folder}/seen.txt`)],
    () => ["The act is played: look."],
  ],
  cut: [(hands, folder) => ["I write much.", hands.write(`${folder}/much.txt`, words(400))]],
  on: [
    (hands, folder) => ["I write less.", hands.write(`${folder}/less.txt`, words(10))],
    () => ["The act is played: on."],
  ],
  long: [
    (hands) => ["", hands.run("seq 1 2000")],
    (hands) => ["", hands.run("printf 'h\\351t\\355\\240\\275 \\033[1m\\360\\237\\246\\212'")],
    () => [`The act is played: long. ${words(200)}.`],
  ],
  delegate: [
    ({ delegate }, folder) => [
      "Others study it.",
      ...["first", "second"].map((name) => delegate!(`Act study in ${folder}/${name}.`)),
    ],
    () => ["The act is played: delegate."],
  ],
  study: [
    ...Array.from({ length: 8 }, (_, i): Step => {
      return (hands) => ["I read on.", hands.run(`seq ${1000 * i} ${1000 * i + 150}`)];
    }),
    (hands, folder) => ["", hands.write(`${folder}/study.txt`, "studied")],
    () => ["The act is played: study."],
  ],
  end: [
    (hands, folder) => ["", hands.run(`cat ${folder}/one.txt ${folder}/two.txt > ${folder}/both.txt`)],
    (hands, folder) => ["", hands.read(`${folder}/both.txt`)],
    () => ["The act is played: end."],
  ],
};

/** Formats a file the way Aider, which calls no tools, reads it from an answer. */
const listing = (name: string, text: string): string => `I write it.\n\n${name}\n\`\`\`\n${text}\n\`\`\`\n`;

/** Returns an answer to Aider. */
function listed(act: string): string {
  const note = /^note(\d+)$/.exec(act)?.[1];
  return note === undefined ? listing("much.txt", words(400)) : listing(`note${note}.txt`, `note ${note}`);
}

/** Parses the tools that the prompt offers: their parameters' names, in order. */
function toolsIn(prompt: string): ReadonlyMap<string, readonly string[]> {
  const listed = /Tools:\n<tools>\n([\s\S]*?)<\/tools>/.exec(prompt)?.[1] ?? "";
  const tools = listed.split("\n").filter((line) => line !== "");
  return new Map(
    tools.map((line) => {
      const { name, parameters } = JSON.parse(line);
      return [name, Object.keys(parameters?.properties ?? {})];
    }),
  );
}

/** Formats a call with the tool's arguments in the order of its schema, which constrains the answer. */
function callOf([name, args]: Deed, tools: ReadonlyMap<string, readonly string[]>): string {
  const keys = (tools.get(name) ?? []).filter((key) => key in args);
  return call(name, Object.fromEntries(keys.map((key) => [key, args[key]])));
}

/**
 * Returns the model's texts in a session of an agent; null: the prompt is not of a session. `turns` are the
 * prompt's, in the demo model's template.
 */
export function actedIn(prompt: string, turns: readonly string[]): readonly string[] | null {
  const actOf = (turn: string) => /^user\n[\s\S]*\bAct (\w+) in (\S+)\./.exec(turn);
  const begin = turns.findLastIndex((turn) => actOf(turn) !== null);
  if (begin < 0) return null;
  const [, name = "", folder = ""] = actOf(turns[begin]!)!;
  const lastUser = turns.findLast((turn) => turn.startsWith("user\n"))!;
  const sumsUp = lastUser === turns[begin] ? /<summary>/ : /summar/i;
  const tools = toolsIn(prompt);
  if (tools.size === 0 && /file listing/.test(prompt)) return [listed(name)];
  const hands = Object.entries(handsBy).find(([tool]) => tools.has(tool))?.[1];
  // Agents request titles and summaries without tools, after the act's message or at its end.
  if (hands === undefined || sumsUp.test(lastUser))
    return ["Acts were played so far.", JSON.stringify({ title: "Acts" })];
  // Skips answers that the server inserts between messages for a strict template; the model did not write
  // them.
  const answers = turns.slice(begin + 1).filter((turn) => /^assistant\n(?!\[no answer\])/.test(turn)).length;
  const [text, ...deeds] = acts[name]?.[answers]?.(hands, folder) ?? ["The act is played already."];
  return [[text, ...deeds.map((deed) => callOf(deed, tools))].filter((part) => part !== "").join("\n")];
}

/** Formats a call as in the demo model's template. */
export function call(name: string, args: unknown): string {
  return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": ${JSON.stringify(args)}}\n</tool_call>`;
}
