/** `bunting completion`: prints a script with which a shell completes commands, options and file names. */

import type { Command, Option } from "commander";
import { ConfigError } from "../config.ts";

const shells = { bash, zsh, fish } as const;
export const shellNames = Object.keys(shells) as readonly (keyof typeof shells)[];

/** Returns the script for a shell. Throws ConfigError for a shell that has none. */
export function completionScript(program: Command, shell: string): string {
  if (!Object.hasOwn(shells, shell))
    throw new ConfigError(`${shell} is no shell that has a script here: ${shellNames.join(", ")}.`);
  return shells[shell as keyof typeof shells](program);
}

function bash(program: Command): string {
  const cases = program.commands.map(
    (command) => `    ${command.name()}) words="${longNames(command).join(" ")}" ;;`,
  );
  return `_bunting() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words=""
  case "\${COMP_WORDS[1]}" in
${cases.join("\n")}
  esac
  [ "$COMP_CWORD" = 1 ] && words="${names(program).join(" ")}"
  [ "$COMP_CWORD" = 1 ] || [[ "$current" == -* ]] || words=""
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _bunting bunting
`;
}

function zsh(program: Command): string {
  const commands = program.commands.map(
    (command) => `    ${quoted(`${command.name()}:${firstSentence(command.description())}`)}`,
  );
  const cases = program.commands.map((command) => {
    const options = visible(command).map((option) => `      ${quoted(zshSpec(option))} \\\n`);
    return `    ${command.name()})\n      _arguments \\\n${options.join("")}      '*:file:_files' ;;`;
  });
  return `#compdef bunting
_bunting() {
  local -a commands=(
${commands.join("\n")}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local name=$words[2]
  shift words
  (( CURRENT-- ))
  case $name in
${cases.join("\n")}
  esac
}
compdef _bunting bunting
`;
}

/**
 * Option as zsh's _arguments takes it: a name, its description in brackets, and a value that may be a file.
 */
function zshSpec({ long, description, flags }: Option): string {
  const text = firstSentence(description).replaceAll(/[[\]:]/g, "\\$&");
  return `*${long}[${text}]${takesValue(flags) ? ":value:_files" : ""}`;
}

function fish(program: Command): string {
  const lines = program.commands.flatMap((command) => {
    const name = command.name();
    const ofName = `-n '__fish_seen_subcommand_from ${name}'`;
    return [
      `complete -c bunting -f -n __fish_use_subcommand -a ${name} -d ${quoted(firstSentence(command.description()))}`,
      ...visible(command).map(
        ({ long, description, flags }) =>
          `complete -c bunting ${ofName} -l ${long!.slice(2)} ${takesValue(flags) ? "-r " : ""}-d ${quoted(firstSentence(description))}`,
      ),
    ];
  });
  return `${lines.join("\n")}\n`;
}

function names(program: Command): string[] {
  return program.commands.map((command) => command.name());
}

function longNames(command: Command): string[] {
  return visible(command).map(({ long }) => long!);
}

function visible({ options }: Command): Option[] {
  return options.filter(({ long, hidden }) => !hidden && long);
}

function takesValue(flags: string): boolean {
  return flags.includes("<");
}

function firstSentence(text: string): string {
  return /^.*?[.:;](?= |$)/.exec(text)?.[0].slice(0, -1) ?? text;
}

/** Text in single quotes, as all three shells read it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
