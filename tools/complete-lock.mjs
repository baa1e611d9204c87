// Completes package-lock.json after `npm install` with a registry that has packages for this platform only.
//
// npm omits an optional package that it cannot find from the lock file, and `npm ci` then refuses the file
// everywhere ("Missing: x from lock file"). This script adds the missing platform packages with version, os
// and cpu. npm needs no more to skip them on other platforms and to fetch them on theirs.
//
//   node tools/complete-lock.mjs          writes package-lock.json
//   node tools/complete-lock.mjs --check  exits 1 and names missing packages

import { readFileSync, writeFileSync } from "node:fs";

const OS = /(?:^|[-/])(android|darwin|freebsd|linux|netbsd|openbsd|sunos|win32|windows|aix)(?:[-.]|$)/;
const CPU =
  /[-.](arm64|aarch64|x64|ia32|arm|ppc64|ppc64le|s390x|riscv64|loong64|loongarch64|mips64el)(?:[-.]|$)/;

/** Platform packages that the lock file's packages name but the lock file lacks: path → entry. */
function missingEntries(lock) {
  const missing = {};
  for (const [parent, entry] of Object.entries(lock.packages)) {
    for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
      const nested = `${parent}/node_modules/${name}`;
      const hoisted = `node_modules/${name}`;
      if (lock.packages[nested] || lock.packages[hoisted]) continue;
      const os = OS.exec(name)?.[1];
      const cpu = CPU.exec(name)?.[1];
      if (!os || !cpu)
        throw new Error(`${name}: no platform in the name, add it to package-lock.json by hand`);
      const npmOs = name.includes("android") ? "android" : os === "windows" ? "win32" : os;
      const npmCpu = cpu === "aarch64" ? "arm64" : cpu;
      missing[hoisted] = {
        version,
        cpu: [npmCpu],
        ...(entry.dev ? { dev: true } : {}),
        ...(name.endsWith("-musl") ? { libc: ["musl"] } : {}),
        optional: true,
        os: [npmOs],
      };
    }
  }
  return missing;
}

const lockFile = new URL("../package-lock.json", import.meta.url);
const lock = JSON.parse(readFileSync(lockFile, "utf8"));
const missing = missingEntries(lock);
const paths = Object.keys(missing);

if (process.argv.includes("--check")) {
  for (const path of paths) console.error(`package-lock.json lacks ${path}`);
  process.exitCode = paths.length > 0 ? 1 : 0;
} else if (paths.length > 0) {
  const entries = Object.entries({ ...lock.packages, ...missing });
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  lock.packages = Object.fromEntries(entries);
  writeFileSync(lockFile, `${JSON.stringify(lock, null, 2)}\n`);
  console.log(`package-lock.json: added ${paths.length} platform packages`);
}
