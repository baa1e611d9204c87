/** Serves the page at `/`: a chat, and views of engines, requests, prefix cache, programs and jobs. */
import { bundlePage, type PageFile } from "./page-files.ts";

/**
 * The page loads code, style and data from this server alone, runs no script from text, and no frame may show
 * it.
 */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const YEAR_SECONDS = 365 * 24 * 60 * 60;

let bundled: Promise<ReadonlyMap<string, PageFile>> | null = null;

/** The page's file of that name; null if there is none. */
export async function pageFile(name: string): Promise<Response | null> {
  bundled ??= bundlePage().then((files) => new Map(files.map((file) => [file.name, file])));
  const file = (await bundled).get(name);
  if (file === undefined) return null;
  return new Response(file.content, {
    headers: {
      "content-type": file.type,
      // Names of all other files change with their content.
      "cache-control": name === "index.html" ? "no-cache" : `public, max-age=${YEAR_SECONDS}, immutable`,
      "content-security-policy": contentSecurityPolicy,
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
    },
  });
}
