import { expect, test } from "bun:test";
import { kernelName, parsePtxas, table } from "./ptxas.mjs";

const few =
  "_ZN7bunting4cuda44_GLOBAL__N__a1f7e5ee_11_gemm_few_cu_b02d9de815gemm_few_kernelILi8ELNS0_6FormatE3EEEvNS1_4TaskE";
const norm = "_ZN7bunting4cuda12_GLOBAL__N_114rmsnorm_kernelENS0_7RmsNormE";

const said = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '${few}' for 'sm_80'
ptxas info    : Function properties for ${few}
    24 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function '${norm}' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 416 bytes cmem[0]
`;

test("kernels are named after their source", () => {
  expect(kernelName(few)).toBe("gemm_few<8, 3>");
  expect(kernelName("_ZN1a16attention_kernelILi64ELb1EEEvv")).toBe("attention<64, 1>");
  expect(kernelName(norm)).toBe("rmsnorm");
});

test("registers and spills are read from what ptxas says", () => {
  expect(parsePtxas(said)).toEqual([
    { kernel: "gemm_few<8, 3>", architecture: "80", registers: 128, spillBytes: 68 },
    { kernel: "rmsnorm", architecture: "90a", registers: 64, spillBytes: 0 },
  ]);
});

test("the table has a line per kernel and a column per architecture", () => {
  expect(table(parsePtxas(said))).toBe(`| Kernel | sm_80 | sm_90a |
|---|---|---|
| \`gemm_few<8, 3>\` | 128 (spills 68 B) | – |
| \`rmsnorm\` | – | 64 |`);
});
