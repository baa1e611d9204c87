#!/usr/bin/env bun
/** Entry of the command line: reads the arguments and hands them to a command. */

import { Command } from "commander";
import { type BenchOptions, bench, benchSettings } from "./cli/bench.ts";
import { type ChatCommandOptions, chatCommand, chatSettings } from "./cli/chat-command.ts";
import { doctor } from "./cli/doctor.ts";
import { isForPeople } from "./cli/failure.ts";
import { addOptions, optionValues } from "./cli/options.ts";
import { serve } from "./cli/serve.ts";
import { type SimulateOptions, simulateCommand, simulateSettings } from "./cli/simulate.ts";
import { type Config, serverSettings } from "./config.ts";
import { version } from "./version.ts";

const program = new Command("bunting")
  .description("Serves language models on this machine, for every client that speaks the OpenAI API.")
  .version(version)
  .showHelpAfterError("(--help lists the options)")
  .addHelpText(
    "after",
    `
Examples:
  bunting serve                          serve the model that comes with Bunting
  bunting serve ~/models/Qwen3-0.6B      serve a Hugging Face folder
  bunting serve ~/models/qwen3-q8.gguf   serve a GGUF file
  bunting chat                           talk to it
  bunting bench --rate 4 --requests 100  measure a server under load
  bunting simulate --policy ours --policy sglang --devices 4xa6000
                                         compare schedulers in virtual time
  bunting doctor                         what this machine has and what is used`,
  );

const FOLDER =
  "Hugging Face folder of a model, or a GGUF file; without it, the model that comes with Bunting";

const serveCommand = program
  .command("serve")
  .description("Serve a model.")
  .argument("[model]", FOLDER)
  .action(async (model?: string) => {
    await end(serve(optionValues<Config>(serveCommand, serverSettings), model ?? null));
  });
addOptions(serveCommand, serverSettings);

const chat = program
  .command("chat")
  .description("Talk to a model, on a running server or on one started for this chat.")
  .argument("[model]", `${FOLDER}. Starts a server of its own`)
  .action(async (model?: string) => {
    await end(chatCommand(optionValues<ChatCommandOptions>(chat, chatSettings), model ?? null));
  });
addOptions(chat, chatSettings);

const benchCommand = program
  .command("bench")
  .description("Load an OpenAI-compatible server and print what its clients feel.")
  .action(async () => {
    await end(bench(optionValues<BenchOptions>(benchCommand, benchSettings)));
  });
addOptions(benchCommand, benchSettings);

const simulation = program
  .command("simulate")
  .description("Run the scheduler in virtual time, on measured devices and traces.")
  .action(async () => {
    await end(simulateCommand(optionValues<SimulateOptions>(simulation, simulateSettings)));
  });
addOptions(simulation, simulateSettings);

const doctorCommand = program
  .command("doctor")
  .description("Say what this machine has, what is used, what not and why. Takes the options of serve.")
  .argument("[model]", FOLDER)
  .action(async (model?: string) => {
    await end(doctor(optionValues<Config>(doctorCommand, serverSettings), model ?? null));
  });
addOptions(doctorCommand, serverSettings);

/** Exits with the command's code; a failure that is a sentence for people is printed as one. */
async function end(command: Promise<number>): Promise<never> {
  try {
    process.exit(await command);
  } catch (error) {
    console.error(isForPeople(error) ? error.message : error);
    process.exit(1);
  }
}

await program.parseAsync();
