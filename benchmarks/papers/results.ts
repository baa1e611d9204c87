/** What one claim's runs found, as text and as files. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Chart, svgOf } from "./svg.ts";
import { type Row, tableOf } from "./table.ts";

interface Table {
  readonly title: string;
  readonly head: readonly string[];
  readonly lines: readonly (readonly string[])[];
}

const HEAD = `# Measured

Written by \`bun benchmarks/papers.ts --write docs/papers\`: virtual time, measured device models
([what is behind them](README.md)). "Met" compares the mean over seeds with what was expected. Ranges are over seeds.
`;

export class Results {
  readonly rows: Row[] = [];
  readonly tables: Table[] = [];
  readonly charts = new Map<string, Chart>();

  /** One section, in Markdown. */
  text(name: string, how: string): string {
    const tables = this.tables.map(({ title, head, lines }) => {
      const cells = [head, head.map(() => "---"), ...lines];
      return `**${title}**\n\n${cells.map((line) => `| ${line.join(" | ")} |`).join("\n")}`;
    });
    const charts = [...this.charts].map(([file, { title }]) => `![${title}](${file}.svg)`);
    const head = [`## ${name}`, `${today()}, commit ${commit()}: ${how}.`, tableOf(this.rows)];
    return [...head, ...tables, ...charts].join("\n\n");
  }

  /** Replaces this claim's section of results.md, and its charts; sections keep to `order`. */
  write(folder: string, name: string, how: string, order: readonly string[]): void {
    mkdirSync(folder, { recursive: true });
    for (const [name, chart] of this.charts) writeFileSync(join(folder, `${name}.svg`), svgOf(chart));
    const path = join(folder, "results.md");
    const sections = new Map<string, string>();
    const before = existsSync(path) ? readFileSync(path, "utf8") : "";
    for (const section of before.split(/^(?=## )/m)) {
      const title = /^## (\w+)/.exec(section)?.[1];
      if (title !== undefined) sections.set(title, section.trim());
    }
    sections.set(name, this.text(name, how));
    const parts = order.map((title) => sections.get(title) ?? `## ${title}\n\nNot measured yet.`);
    writeFileSync(path, `${[HEAD.trim(), ...parts].join("\n\n")}\n`);
  }
}

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

/** The commit that is checked out, or that there is none. */
function commit(): string {
  const { exitCode, stdout } = Bun.spawnSync(["git", "rev-parse", "--short", "HEAD"], { stderr: "ignore" });
  return exitCode === 0 ? stdout.toString().trim() : "unknown";
}
