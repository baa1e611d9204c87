// Progress of a build: files compiled of all, and the time left. A bar on a terminal, else a line per tenth.

import { statSync } from "node:fs";
import { basename, join } from "node:path";

/** Seconds that long files take on a fast core; one second if not named. */
const SECONDS = {
  "gemm_grouped.cpp.o": 30,
  "attention.cpp.o": 9,
  "gemm.cpp.o": 4,
  "gemm_few.o": 60,
  "gemm_many.o": 60,
  "attention.o": 40,
};
const POLL_MS = 300;
const BAR_CELLS = 24;

/** Object files that a dry run of make names, below the build folder. */
export function filesToBuild(output) {
  return [...output.matchAll(/Building \w+ object ([^\s"']+)/g)].map(([, file]) => file);
}

/**
 * Seconds until all files are compiled; null while there is too little to estimate from. Each file has
 * `seconds`, its expected work, and the times at which it was started and ended, null if not yet.
 */
export function secondsLeft(files, jobs, nowMs) {
  const ended = files.filter(({ endedMs }) => endedMs !== null);
  const work = sum(ended.map(({ seconds }) => seconds));
  if (work < 3) return null;
  const slowness = sum(ended.map(({ startedMs, endedMs }) => (endedMs - startedMs) / 1000)) / work;
  const left = files
    .filter(({ endedMs }) => endedMs === null)
    .map(({ seconds, startedMs }) =>
      Math.max(0, seconds * slowness - (startedMs === null ? 0 : (nowMs - startedMs) / 1000)),
    );
  return Math.max(sum(left) / jobs, 0, ...left);
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Watches the object files of a build. */
export class Progress {
  #folder;
  #files;
  #jobs;
  #sinceMs = 0;
  #timer = null;
  #tenths = 0;

  constructor(folder, files, jobs) {
    this.#folder = folder;
    this.#jobs = jobs;
    this.#files = new Map(
      files.map((file) => [file, { seconds: SECONDS[basename(file)] ?? 1, startedMs: null, endedMs: null }]),
    );
  }

  get files() {
    return this.#files.size;
  }

  start() {
    if (this.files === 0) return;
    this.#sinceMs = Date.now();
    this.#timer = setInterval(() => this.#look(), POLL_MS);
  }

  /** Notes which file a line of make's output starts. A changed header may add files to those of the dry run. */
  onLine(line) {
    const [file] = filesToBuild(line);
    if (file === undefined || this.#timer === null) return;
    const known = this.#files.get(file) ?? { seconds: SECONDS[basename(file)] ?? 1, endedMs: null };
    this.#files.set(file, { ...known, startedMs: Date.now() });
  }

  end() {
    if (this.#timer === null) return;
    clearInterval(this.#timer);
    if (process.stdout.isTTY) process.stdout.write("\r\x1b[K");
  }

  #look() {
    for (const [path, file] of this.#files) {
      if (file.startedMs !== null && file.endedMs === null && this.#isWritten(path))
        file.endedMs = Date.now();
    }
    const files = [...this.#files.values()];
    const done = files.filter(({ endedMs }) => endedMs !== null).length;
    const left = secondsLeft(files, this.#jobs, Date.now());
    const text = `${done} of ${files.length} files${left === null ? "" : `, about ${Math.ceil(left)} s left`}`;
    if (process.stdout.isTTY) {
      const full = Math.floor((BAR_CELLS * done) / files.length);
      process.stdout.write(`\r\x1b[K[${"#".repeat(full)}${"-".repeat(BAR_CELLS - full)}] ${text}`);
    } else if (Math.floor((10 * done) / files.length) > this.#tenths) {
      this.#tenths = Math.floor((10 * done) / files.length);
      console.log(`${this.#tenths * 10} %: ${text}`);
    }
  }

  #isWritten(path) {
    const status = statSync(join(this.#folder, path), { throwIfNoEntry: false });
    // File systems round times; one second is far below the time since an older build of the same file.
    return status !== undefined && status.mtimeMs >= this.#sinceMs - 1000;
  }
}
