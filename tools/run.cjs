// Entry of every npm script: `node tools/run.cjs start|test|check|nightly|build|release|setup [args]`.
//
// Plain CommonJS in old syntax, so that a Node too old for the rest of tools/ still gets a sentence, not a syntax
// error. Needs no installed package.

var NODE_MAJOR_MIN = 18;
var TASKS = ["start", "test", "check", "nightly", "build", "release", "setup"];

var major = Number(process.versions.node.split(".")[0]);
var task = process.argv[2];

if (major < NODE_MAJOR_MIN) {
  fail(`Node ${process.versions.node} is too old: Bunting needs Node ${NODE_MAJOR_MIN} or newer.`);
} else if (TASKS.indexOf(task) < 0) {
  fail(`Usage: node tools/run.cjs ${TASKS.join("|")} [arguments]`);
} else {
  import(`./${task}.mjs`)
    .then((module) => module.main(process.argv.slice(3)))
    .then(
      (exitCode) => {
        process.exitCode = exitCode;
      },
      (error) => {
        // A SetupError is a sentence for people; anything else is a bug and keeps its stack.
        fail(error && error.name === "SetupError" ? error.message : error);
      },
    );
}

function fail(reason) {
  console.error(reason);
  process.exitCode = 1;
}
