#!/usr/bin/env bun
/** Entry of the command line: reads the arguments and hands them to a command. */

import { Command } from "commander";
import { batch, batchHelp, batchOptions } from "./cli/batch.ts";
import { bench, benchHelp, benchOptions } from "./cli/bench.ts";
import { cache, cacheOptions } from "./cli/cache.ts";
import { chatCommand, chatHelp, chatOptions } from "./cli/chat-command.ts";
import { completionScript, shellNames } from "./cli/completion.ts";
import { doctor, doctorOptions, doctorRefused } from "./cli/doctor.ts";
import { isForPeople } from "./cli/failure.ts";
import { jobs, jobsOptions } from "./cli/jobs.ts";
import { models } from "./cli/models.ts";
import { addOptions, helpLayout, type OptionList, optionValues } from "./cli/options.ts";
import { withNameHere } from "./cli/other-servers.ts";
import { pull, pullHelp, pullOptions } from "./cli/pull.ts";
import { serve } from "./cli/serve.ts";
import { simulateCommand, simulateOptions } from "./cli/simulate.ts";
import { top, topOptions } from "./cli/top/top.ts";
import { variableProblem } from "./cli/variables.ts";
import { why, whyOptions } from "./cli/why.ts";
import { ConfigError, type Setting, serverHeadings, serverSettings, type Values } from "./config.ts";
import { version } from "./version.ts";

const program = new Command("bunting")
  .description(
    "Serves language models on this machine, for every client that speaks the OpenAI, Anthropic or Ollama API.",
  )
  .version(version)
  .configureHelp(helpLayout)
  .showHelpAfterError("(--help lists the commands; a model and its options belong to bunting serve)")
  .addHelpText(
    "after",
    `
Examples:
  bunting serve                          serve the model that comes with Bunting
  bunting serve ~/models/Qwen3-0.6B      serve a Hugging Face folder
  bunting serve ~/models/qwen3-q8.gguf   serve a GGUF file
  bunting serve Qwen/Qwen3-0.6B          serve a published model, and fetch
                                         it if it is not on this machine
  bunting chat                           talk to it
  bunting batch in.jsonl -o out.jsonl    run a file of prompts, and go on where
                                         it was stopped
  bunting bench --rate 4 --requests 100  measure a server under load
  bunting simulate --policy ours --policy sglang
                                         compare schedulers in virtual time
  bunting doctor                         what this machine has and what is used

\`bunting <command> --help\` lists the options of a command.`,
  );

/**
 * Adds a command with an option for each setting. `model`: description of its argument; null: it has none.
 * `refused` reports on a configuration file that cannot be used, with --json.
 */
function command<Settings extends Record<string, Setting<unknown>>>(
  name: string,
  description: string,
  options: OptionList<Settings>,
  model: string | null,
  run: (options: Values<Settings>, model: string | null) => Promise<number>,
  refused: ((error: ConfigError) => Promise<number>) | null = null,
): Command {
  const added = program.command(name).description(description);
  if (model !== null) added.argument("[model]", model);
  addOptions(added, options);
  return added.action(async (given: unknown) => {
    const start = async (): Promise<number> => {
      let values: Values<Settings>;
      try {
        values = optionValues(added, options.settings);
      } catch (error) {
        if (refused === null || added.opts().json !== true || !(error instanceof ConfigError)) throw error;
        return await refused(error);
      }
      return await run(values, typeof given === "string" ? given : null);
    };
    await end(start());
  });
}

const folder =
  "Hugging Face folder of a model, a GGUF file, or a published name such as Qwen/Qwen3-0.6B or qwen3:0.6b, which is fetched if it is not in the cache; without it, the model that comes with Bunting";

const serverOptions: OptionList<typeof serverSettings> = {
  settings: serverSettings,
  headings: serverHeadings,
};

program.commandsGroup("Serve and use:");
command("serve", "Serve a model.", serverOptions, folder, serve);
command(
  "chat",
  "Talk to a model, on a running server or on one started for this chat.",
  chatOptions,
  `${folder}. Starts a server of its own`,
  chatCommand,
).addHelpText("after", chatHelp);

const batchCommand = program
  .command("batch")
  .description("Run a file of prompts: JSON lines as OpenAI's batches have them, CSV, or a prompt per line.")
  .argument(
    "<input>",
    "requests in .jsonl, rows in .csv, or a prompt per line in any other file; - is standard input: requests, or a prompt per line",
  )
  .argument("[model]", `${folder}. Without --url`)
  .addHelpText("after", batchHelp)
  .action(async (input: string, model?: string) => {
    await end(batch(optionValues(batchCommand, batchOptions.settings), input, model ?? null));
  });
addOptions(batchCommand, batchOptions);

const jobsCommand = program
  .command("jobs")
  .description("List the jobs of a server, show or cancel one.")
  .argument("<what>", "list, show or cancel")
  .argument("[id]", "of the job, for show and cancel")
  .action(async (what: string, id?: string) => {
    await end(jobs(optionValues(jobsCommand, jobsOptions.settings), what, id ?? null));
  });
addOptions(jobsCommand, jobsOptions);

const pullCommand = program
  .command("pull")
  .description("Fetch a published model, or what is new in it, without serving it.")
  .argument("<model>", "<repository>[@revision][:file or quant], or a name of Ollama's")
  .addHelpText("after", pullHelp)
  .action(async (model: string) => {
    await end(pull(optionValues(pullCommand, pullOptions.settings), model));
  });
addOptions(pullCommand, pullOptions);

program
  .command("models")
  .description("List the published models on this machine, or remove one.")
  .argument("[what]", "rm removes a model; without it they are listed")
  .argument("[model]", "name as it is listed")
  .action(async (what?: string, model?: string) => {
    await end(models(what ?? null, model ?? null));
  });

const cacheCommand = program
  .command("cache")
  .description("List the KV pages on disk by model, or remove them.")
  .argument("[what]", "clear removes pages; without it they are listed")
  .argument("[model]", "name as it is listed; without it, all models")
  .action(async (what?: string, model?: string) => {
    await end(cache(optionValues(cacheCommand, cacheOptions.settings), what ?? null, model ?? null));
  });
addOptions(cacheCommand, cacheOptions);

program.commandsGroup("Look and measure:");
command(
  "doctor",
  "Say what this machine has, what is used, what not and why. Takes the options of serve.",
  doctorOptions,
  folder,
  doctor,
  doctorRefused,
);
command(
  "bench",
  "Load an OpenAI-compatible server and print what its clients feel, or measure this machine.",
  benchOptions,
  null,
  bench,
).addHelpText("after", benchHelp);
command(
  "simulate",
  "Run the scheduler in virtual time, on measured devices and traces.",
  simulateOptions,
  null,
  simulateCommand,
);

command("top", "Show a running server at work, in the terminal.", topOptions, null, top);

const whyCommand = program
  .command("why")
  .description("Show where the time of a request went, or list a server's slowest requests.")
  .argument("[id]", "of the request, as its header x-request-id says; without it, the slowest are listed")
  .action(async (id?: string) => {
    await end(why(optionValues(whyCommand, whyOptions.settings), id ?? null));
  });
addOptions(whyCommand, whyOptions);

program
  .command("completion")
  .description("Print a script for your shell that completes commands, options and file names.")
  .argument("<shell>", shellNames.join(", "))
  .action(async (shell: string) => {
    const print = async (): Promise<number> => {
      console.log(completionScript(program, shell));
      return 0;
    };
    await end(print());
  });

// Commander's own help command shows the list of commands for a name that it does not know.
program
  .helpCommand(false)
  .command("help")
  .description("Show the options of a command.")
  .argument("[command]")
  .action((name?: string) => {
    const named = name === undefined ? program : program.commands.find((each) => each.name() === name);
    if (named === undefined) program.error(`error: unknown command '${name}'`);
    else named.outputHelp();
  });

/**
 * Exits with the command's code. Prints an error for people as its message alone, other errors with their
 * stack.
 */
async function end(command: Promise<number>): Promise<never> {
  try {
    process.exit(await command);
  } catch (error) {
    console.error(isForPeople(error) ? error.message : error);
    process.exit(1);
  }
}

program.configureOutput({ outputError: (message, write) => write(withNameHere(message)) });
for (const each of program.commands) {
  each.configureOutput({ outputError: (message, write) => write(withNameHere(message)) });
  each.showHelpAfterError(`(bunting ${each.name()} ${each.usage()}; --help lists the options)`);
}

const problem = variableProblem(program, process.env);
if (problem !== null) {
  console.error(problem);
  process.exit(1);
}
await program.parseAsync();
