/** Packages of `npm run release`, installed into empty folders, on a path without compilers. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { Program } from "./program.ts";
import { expectAnswers, expectAnswersAt, inImage, mayMount, run } from "./released.ts";

const root = resolve(import.meta.dir, "../..");
const scratch = mkdtempSync(join(tmpdir(), "bunting-release-"));
const release = join(scratch, "release");
const home = join(scratch, "home");
const bin = join(scratch, "bin");
const platform = `linux-${process.arch}`;
const folder = `bunting-${packageJson.version}-${platform}`;
/** Milliseconds for a test on a busy machine. */
const TEST_MS = 300_000;
const environment = { HOME: home, PATH: bin };
/** Only this platform has a package with the engine for GPUs; the emulated GPU stands for a real one. */
const hasCuda = platform === "linux-x64";
const onGpus = "Computes on GPUs, because there is 1 × emulated GPU.";

const isGlibc = !readFileSync("/proc/self/maps", "utf8").includes("ld-musl");
const npm = Bun.which("npm");
const node = Bun.which("node");

beforeAll(async () => {
  mkdirSync(home);
  mkdirSync(bin);
  const tools = "sh id dirname sha256sum tail cp chmod mkdir mv sed env node tar gzip uname";
  for (const name of tools.split(" ")) {
    const path = Bun.which(name);
    if (path !== null) symlinkSync(path, join(bin, name));
  }
  await releaseTo(release);
}, TEST_MS);

afterAll(() => rmSync(scratch, { recursive: true }));

async function releaseTo(out: string): Promise<void> {
  const library = join(root, "build", "native", "libbunting_cpu.so");
  const options = ["--out", out, "--library", library, "--runtime", process.execPath];
  const cuda = ["--cuda-library", join(root, "build", "native", "cuda", "libbunting_emu.so")];
  const platforms = hasCuda ? [platform, `${platform}-cuda`, ...cuda] : [platform];
  await run([process.execPath, join(root, "tools", "release.ts"), ...platforms, ...options]);
}

test.skipIf(!isGlibc)(
  "the archive installs into an empty prefix, and refuses damaged files",
  async () => {
    await run(["tar", "xzf", join(release, `${folder}.tar.gz`), "-C", scratch]);
    const prefix = join(scratch, "prefix");
    const install = ["sh", join(scratch, folder, "install.sh"), "--prefix", prefix];
    const program = new Program(install, { environment });
    expect(await program.exitCode()).toBe(0);
    expect(program.output).toContain(`Start it: ${prefix}/bin/bunting serve`);
    const bunting = join(prefix, "bin", "bunting");
    expect(await expectAnswers([bunting], environment)).toContain("Computes on the CPU, because ");

    if (hasCuda) {
      const driver = fakeDriver();
      const doctor = new Program([bunting, "doctor"], {
        environment: { ...environment, LD_LIBRARY_PATH: driver },
      });
      await doctor.exitCode();
      expect(doctor.output).toContain(
        "there is 1 × NVIDIA Test, but this build has no CUDA engine: the package @bunting/linux-x64-cuda has one",
      );
      await run(["tar", "xzf", join(release, `${folder}-cuda.tar.gz`), "-C", scratch]);
      const engine = ["sh", join(scratch, `${folder}-cuda`, "install.sh"), "--prefix", prefix];
      const installed = new Program(engine, { environment });
      expect(await installed.exitCode()).toBe(0);
      expect(installed.output).toContain(`Installed ${prefix}/lib/bunting/libbunting_cuda.so`);
      expect(await expectAnswers([bunting], environment)).toContain(onGpus);
    }

    await Bun.write(join(scratch, folder, "LICENSE"), "damaged");
    const damaged = new Program(install, { environment });
    expect(await damaged.exitCode()).toBe(1);
    expect(damaged.errors).toContain("differ from SHA256SUMS");
  },
  TEST_MS,
);

test.skipIf(npm === null || node === null)(
  "the npm package runs the executable of its platform",
  async () => {
    const prefix = join(scratch, "npm");
    mkdirSync(prefix);
    await Bun.write(join(prefix, "package.json"), "{}");
    const packages = [`bunting-${platform}`, "bunting", ...(hasCuda ? [`bunting-${platform}-cuda`] : [])];
    const paths = packages.map((name) => join(release, `${name}-${packageJson.version}.tgz`));
    // Without a registry npm leaves out the optional packages of other platforms.
    await run([npm!, "install", "--offline", "--no-audit", "--no-fund", ...paths], { cwd: prefix });
    const command = join(prefix, "node_modules", ".bin", "bunting");
    if (hasCuda) {
      expect(await expectAnswers([command], environment)).toContain(onGpus);
      rmSync(join(prefix, "node_modules", "@bunting", `${platform}-cuda`), { recursive: true });
    }
    expect(await expectAnswers([command], environment)).toContain("Computes on the CPU, because ");

    rmSync(join(prefix, "node_modules", "@bunting"), { recursive: true });
    const alone = new Program([command, "--version"], { environment });
    expect(await alone.exitCode()).toBe(1);
    expect(alone.errors).toContain(`the package @bunting/${platform} is not installed`);
  },
  TEST_MS,
);

test(
  "the same source gives the same bytes, and SHA256SUMS has them",
  async () => {
    const again = join(scratch, "again");
    await releaseTo(again);
    const sums = readFileSync(join(release, "SHA256SUMS"), "utf8");
    expect(readFileSync(join(again, "SHA256SUMS"), "utf8")).toBe(sums);
    await run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], { cwd: release });
  },
  TEST_MS,
);

test.skipIf(!isGlibc || !mayMount)(
  "the steps of the Dockerfile serve as an ordinary user",
  async () => {
    const image = join(scratch, "image");
    await writeBaseImage(image);
    const docker = dockerSteps(readFileSync(join(release, "Dockerfile"), "utf8"));
    for (const [word, rest] of docker) {
      if (word === "RUN") await run(inImage(image, "0:0", ["bash", "-c", rest]));
      if (word !== "COPY") continue;
      const architecture = process.arch === "x64" ? "amd64" : process.arch;
      const paths = rest.replace(["$", "{TARGETARCH}"].join(""), architecture).split(" ");
      mkdirSync(dirname(join(image, paths[1]!)), { recursive: true });
      cpSync(join(release, paths[0]!), join(image, paths[1]!));
    }
    const stepOf = (word: string) => docker.find(([one]) => one === word)![1];
    const variables = Object.fromEntries(
      stepOf("ENV")
        .split(" ")
        .map((pair) => pair.split("=") as [string, string]),
    );
    const [entry, start] = ["ENTRYPOINT", "CMD"].map((word) => JSON.parse(stepOf(word)) as string[]);
    const command = inImage(image, stepOf("USER"), [...entry!, ...start!, "--port", "0"]);
    const server = new Program(command, { environment: { PATH: "/usr/bin:/bin:/usr/sbin", ...variables } });
    const url = new URL(await server.url());
    url.hostname = "127.0.0.1";
    await expectAnswersAt(url.origin);

    const health = JSON.parse(stepOf("HEALTHCHECK").replace(/^.* CMD /, "")) as string[];
    const check = (port: string) =>
      new Program(
        inImage(
          image,
          "10001:10001",
          health.map((word) => word.replace("8000", port)),
        ),
      ).exitCode();
    expect([await check(url.port), (await check("1")) !== 0]).toEqual([0, true]);
    server.signal("SIGTERM");
    expect(await server.exitCode()).toBe(0);
  },
  60_000,
);

/** Folder with a driver library that has one GPU. */
function fakeDriver(): string {
  const folder = join(scratch, "driver");
  mkdirSync(folder);
  const source = join(root, "tests", "support", "fake-libcuda.c");
  const command = ["cc", "-shared", "-fPIC", "-o", join(folder, "libcuda.so.1"), source];
  expect(Bun.spawnSync(command, { stderr: "inherit" }).exitCode).toBe(0);
  return folder;
}

/** Steps of a Dockerfile as word and rest, without comments. */
function dockerSteps(text: string): [string, string][] {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return lines.map((line) => [line.slice(0, line.indexOf(" ")), line.slice(line.indexOf(" ") + 1)]);
}

/** Writes the parts of a slim Debian that the Dockerfile uses: the shell's tools and the C library. */
async function writeBaseImage(image: string): Promise<void> {
  for (const path of ["proc", "dev", "tmp", "var/lib", "var/cache", "usr/bin"]) {
    mkdirSync(join(image, path), { recursive: true });
  }
  chmodSync(join(image, "tmp"), 0o1777);
  for (const path of ["bin", "lib", "lib64"]) symlinkSync(`usr/${path}`, join(image, path));
  const tools = ["bash", "install", "head", "grep"].map((name) => Bun.which(name)!);
  const listed = await run(["ldd", ...tools, process.execPath]);
  const libraries = [...new Set(listed.match(/\/lib\S*/g))].filter((path) => !path.endsWith(":"));
  for (const path of [...tools, ...libraries]) {
    const target = join(image, path.startsWith("/usr/") ? path : `/usr${path}`);
    mkdirSync(dirname(target), { recursive: true });
    cpSync(path, target, { dereference: true });
  }
}
