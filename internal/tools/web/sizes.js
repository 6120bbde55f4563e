// sizes — the page's style as a failing check, in what only a parser can see:
// a function has at most 70 lines, and every exported function, class and
// constant says what it is in a JSDoc comment. Run by make check.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const maxLines = 70;
const root = fileURLToPath(new URL("../../../lab/page", import.meta.url));
const files = readdirSync(root, { recursive: true }).filter((name) => name.endsWith(".js"));
let bad = 0;

/** @param {string} name @param {ts.SourceFile} source @param {ts.Node} node @param {string} text */
function tell(name, source, node, text) {
  const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
  console.error(`lab/page/${name}:${line}: ${text}`);
  bad++;
}

/** @param {string} name @param {ts.SourceFile} source @param {ts.Node} node */
function look(name, source, node) {
  if (ts.isFunctionLike(node)) {
    const from = source.getLineAndCharacterOfPosition(node.getStart(source)).line;
    const to = source.getLineAndCharacterOfPosition(node.end).line;
    if (to - from + 1 > maxLines) {
      tell(name, source, node, `a function of ${to - from + 1} lines: at most ${maxLines}`);
    }
  }
  const exported = ts.canHaveModifiers(node) && ts.getModifiers(node)?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword);
  if (exported && ts.getJSDocCommentsAndTags(node).length === 0) {
    tell(name, source, node, "an export without a JSDoc comment");
  }
  ts.forEachChild(node, (child) => look(name, source, child));
}

for (const name of files) {
  const source = ts.createSourceFile(name, readFileSync(join(root, name), "utf8"), ts.ScriptTarget.ES2023, true, ts.ScriptKind.JS);
  look(name, source, source);
}
if (files.length < 5) {
  console.error(`only ${files.length} scripts in ${root}: looking in the wrong place`);
  bad++;
}
process.exit(bad ? 1 : 0);
