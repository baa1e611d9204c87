import { describe, expect, test } from "bun:test";
import { Command, Option } from "commander";
import { completionScript, shellNames } from "./completion.ts";

const program = new Command("bunting");
program
  .command("serve")
  .description("Serve a model: here.")
  .addOption(new Option("--port <number>", "Port of Bunting's socket [TCP]: a number. 0 takes any."))
  .addOption(new Option("--insecure", "Listen to all"));
program.command("doctor").description("Say what is used");

/** Runs a command line of a shell; null if this machine lacks the shell. */
function run(shell: string, text: string): string | null {
  if (Bun.which(shell) === null) return null;
  const { stdout, stderr } = Bun.spawnSync([shell, "-c", text]);
  return stdout.toString() + stderr.toString();
}

const inBash = (words: string, at: number): string | null =>
  run(
    "bash",
    `${completionScript(program, "bash")}\nCOMP_WORDS=(${words}); COMP_CWORD=${at}; _bunting; echo "\${COMPREPLY[@]}"`,
  );

describe("completion", () => {
  test("bash completes commands, options of the command, and leaves the rest to file names", () => {
    expect(inBash("bunting d", 1)).toBe("doctor\n");
    expect(inBash("bunting ''", 1)).toBe("serve doctor\n");
    expect(inBash("bunting serve --p", 2)).toBe("--port\n");
    expect(inBash("bunting doctor --p", 2)).toBe("\n");
    expect(inBash("bunting serve model", 2)).toBe("\n");
  });

  test.skipIf(Bun.which("fish") === null)("fish completes options with their sentences", () => {
    const shown = run("fish", `${completionScript(program, "fish")}\ncomplete -C "bunting serve --p"`);
    expect(shown).toBe("--port\tPort of Bunting's socket [TCP]\n");
  });

  test.skipIf(Bun.which("zsh") === null)("zsh reads the script", () => {
    expect(run("zsh", `compdef() {}\n${completionScript(program, "zsh")}\nwhich _bunting > /dev/null`)).toBe(
      "",
    );
  });

  test("another shell is refused by name", () => {
    expect(shellNames).toEqual(["bash", "zsh", "fish"]);
    expect(() => completionScript(program, "tcsh")).toThrow(
      "tcsh is no shell that has a script here: bash, zsh, fish.",
    );
    expect(() => completionScript(program, "toString")).toThrow("toString is no shell");
  });
});
