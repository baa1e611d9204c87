/** Reports as one HTML file: figures, tables and plots, without network and under a strict CSP. */

import uplotScript from "uplot/dist/uPlot.iife.min.js" with { type: "text" };
import uplotCss from "uplot/dist/uPlot.min.css" with { type: "text" };
import { ConfigError } from "../../config.ts";
import type { Cell } from "../table.ts";
// @ts-expect-error: a script of browsers, imported as text and not as a module
import draw from "./draw.js" with { type: "text" };
import style from "./style.css" with { type: "text" };

export interface Plot {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  /** Ascending. */
  readonly x: readonly number[];
  readonly lines: readonly PlotLine[];
  /** X value of a vertical line; absent: none. */
  readonly mark?: number;
}

export interface PlotLine {
  readonly label: string;
  /** Values by x; null: no point there. */
  readonly values: readonly (number | null)[];
}

export interface ReportTable {
  readonly head: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
}

export interface HtmlReport {
  readonly title: string;
  /** Sentences below the title. */
  readonly notes: readonly string[];
  readonly tables: readonly ReportTable[];
  readonly plots: readonly Plot[];
}

/** The whole file. Its content security policy allows only its own scripts and style. */
export function htmlOf({ title, notes, tables, plots }: HtmlReport): string {
  const css = `${uplotCss}\n${style}`;
  const scripts = [String(uplotScript), String(draw)].map(inScript);
  const policy = [
    "default-src 'none'",
    `script-src ${scripts.map(sourceOf).join(" ")}`,
    `style-src ${sourceOf(css)}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const data = JSON.stringify(plots).replaceAll("<", "\\u003c");
  return [
    "<!doctype html>",
    '<html lang="en">',
    '<meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    '<meta name="color-scheme" content="light dark">',
    `<title>${escaped(title)}</title>`,
    `<style>${css}</style>`,
    `<main><h1>${escaped(title)}</h1>`,
    ...notes.map((note) => `<p>${escaped(note)}</p>`),
    ...tables.map(tableOf),
    ...plots.map(figureOf),
    "</main>",
    `<script type="application/json" id="plots">${data}</script>`,
    ...scripts.map((script) => `<script>${script}</script>`),
    "</html>",
    "",
  ].join("\n");
}

/** Writes the file of `--html`. Throws ConfigError if it cannot be written. */
export async function writeHtml(file: string, report: HtmlReport): Promise<void> {
  try {
    await Bun.write(file, htmlOf(report));
  } catch (error) {
    throw new ConfigError(`The report cannot be written: ${(error as Error).message}`);
  }
}

/** Escapes a script: an end tag anywhere in it would end the script element. */
function inScript(script: string): string {
  return script.replaceAll("</script", "<\\/script");
}

function sourceOf(content: string): string {
  return `'sha256-${new Bun.CryptoHasher("sha256").update(content).digest("base64")}'`;
}

function tableOf({ head, rows }: ReportTable): string {
  const cells = (tag: "th" | "td", row: readonly Cell[]): string =>
    `<tr>${row.map((cell) => `<${tag}>${escaped(cell === null ? "–" : String(cell))}</${tag}>`).join("")}</tr>`;
  return `<div class="wide"><table><thead>${cells("th", head)}</thead><tbody>${rows.map((row) => cells("td", row)).join("")}</tbody></table></div>`;
}

function figureOf({ title, xLabel, yLabel }: Plot, index: number): string {
  const label = `${title}: ${yLabel} by ${xLabel}`;
  return `<figure><figcaption>${escaped(title)}</figcaption><div id="plot-${index}" role="img" aria-label="${escaped(label)}"></div></figure>`;
}

function escaped(text: string): string {
  return Bun.escapeHTML(text);
}
