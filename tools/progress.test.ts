import { expect, test } from "bun:test";
import { filesToBuild, secondsLeft } from "./progress.mjs";

test("a dry run of make names the files to compile", () => {
  const output = [
    `cd /b && cmake -E cmake_echo_color --progress-num=1 "Building CXX object CMakeFiles/a.dir/a.cpp.o"`,
    `c++ -o CMakeFiles/a.dir/a.cpp.o -c /s/a.cpp`,
    `cmake -E cmake_echo_color "Linking CXX shared library libx.so"`,
    `[ 10%] Building CUDA object cuda/gate.o`,
  ].join("\n");
  expect(filesToBuild(output)).toEqual(["CMakeFiles/a.dir/a.cpp.o", "cuda/gate.o"]);
});

test("the time left follows from the speed of the files that are done", () => {
  const done = { seconds: 10, startedMs: 0, endedMs: 20_000 };
  const running = { seconds: 10, startedMs: 15_000, endedMs: null };
  const waiting = { seconds: 5, startedMs: null, endedMs: null };
  // Twice as slow as expected: 15 s of the running file are left, and 10 s of the waiting one.
  expect(secondsLeft([done, running, waiting], 1, 20_000)).toBe(25);
  expect(secondsLeft([done, running, waiting], 2, 20_000)).toBe(15);
  expect(secondsLeft([done], 2, 20_000)).toBe(0);
  expect(secondsLeft([running, waiting], 2, 20_000)).toBeNull();
});
