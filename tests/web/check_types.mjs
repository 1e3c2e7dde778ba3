// The type check of the web page: `make check-web`. It is `tsc --checkJs` with services/web/jsconfig.json, and in addition what
// stands in `html` templates is checked: each template is read as the calls that htm makes of it, before TypeScript sees the module.
//
//     html`<${Button} small onClick=${go}>Go<//>`    is checked as    Button({"small": true, "onClick": (go), children: "Go"})
//
// So a property that a component does not know is an error, and the row of a table's `cell` has the type of the table's rows. Lines
// stay where they are; columns do not, so only lines are told. Attributes of elements are not checked.
//
// Each run also checks a module that is wrong in known places: a check that misses one of them fails.
//
// TypeScript is the one that `tsc` on the PATH belongs to: npx puts it there.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const PAGE = path.join(ROOT, "services/web");
const VENDOR = path.join(PAGE, "vendor") + path.sep;
/** Declares what templates are read as; a file that only TypeScript sees. */
const DECLARATIONS = path.join(PAGE, "read_templates.d.ts");
const DECLARED = `
declare function __template(tag: any, content: any): any;
declare function __element(name: any, properties: Record<string, any>, children: any[]): any;
declare function __component(component: (properties: {}) => any, properties: {}): any;
declare function __key(key: any): {};
`;
const KEY = "...__key";
/** A module that only TypeScript sees: every line with "nonsense" is wrong, and no other. */
const WRONG = path.join(PAGE, "wrong.js");
const WRONG_TEXT = `
import { html } from "./ui.js";
import { get, runs } from "./api.js";
import { Button } from "./components/controls.js";
import { Resource } from "./components/states.js";
import { PlainTable, Table } from "./components/table.js";
import { useResource } from "./resource.js";

export const field = async () => (await runs.one("r_1")).nonsense;
export const route = async () => (await get("/v1/nonsense")).field;
export const missing = (/** @type {Api.Run} */ run) => run.nonsense?.length;
export const known = async () => [(await runs.one("r_1")).agent, (await get(\`/v1/runs/\${"r_1"}/events\`.slice(1))).anything];
export function Page() {
  const list = useResource((signal) => runs.list({}, { signal }), []);
  return html\`
    <p class="a \${1} b" key=\${2} hidden>Some text <b>more</b> \${"x"} <br /> <!-- a comment -->
      and text</p>
    <\${Button} small key=\${1} onClick=\${() => {}}>Go<//>
    <\${Button}
      nonsense />
    <\${Button} kind="nonsense">Go<//>
    <\${Resource} of=\${list}>\${(data) => html\`
      <\${PlainTable} label="Runs" rows=\${data.runs} columns=\${[
        { key: "agent", title: "Agent", cell: (row) => html\`<b>\${row.agent}</b>\` },
        { key: "other", title: "Other", cell: (row) => html\`<b>\${row.nonsense}</b>\` },
      ]} />
      \${data.nonsense}\`}<//>
    <\${Table} label="Runs" rows=\${[1]} columns=\${[]} rowKey=\${(row) => row.nonsense} />
    <\${Nothing} key="a" />\`;
}
const Nothing = () => null;
`;
/** An expression in the text of a template: START, its number, END. */
const START = "\u0001";
const END = "\u0002";

/** @returns {any} */
function loadTypeScript() {
  for (const folder of (process.env.PATH ?? "").split(path.delimiter)) {
    const command = path.join(folder, "tsc");
    if (fs.existsSync(command)) return createRequire(import.meta.url)(path.join(path.dirname(fs.realpathSync(command)), "../lib/typescript.js"));
  }
  throw new Error("there is no tsc on the PATH: use `make check-web`");
}

const ts = loadTypeScript();

/** A module as it is checked. @param {string} name @param {string} text @returns {string} */
export function readTemplates(name, text) {
  const source = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
  /** The text of a node with its templates replaced. */
  const textOf = (node, from = node.getFullStart()) => {
    let out = "";
    let at = from;
    const visit = (one) => {
      if (ts.isTaggedTemplateExpression(one) && one.tag.getText(source) === "html") {
        const begin = one.getStart(source);
        out += text.slice(at, begin) + callsOf(one.template, `${name}:${source.getLineAndCharacterOfPosition(begin).line + 1}`);
        at = one.end;
      } else ts.forEachChild(one, visit);
    };
    visit(node);
    return out + text.slice(at, node.end);
  };
  const callsOf = (template, place) => {
    if (ts.isNoSubstitutionTemplateLiteral(template)) return new Template(template.rawText ?? template.text, [], place).calls();
    const expressions = template.templateSpans.map((span) => textOf(span.expression));
    const literals = [template.head, ...template.templateSpans.map((span) => span.literal)].map((part) => part.rawText ?? part.text);
    return new Template(literals.map((part, at) => (at ? `${START}${at - 1}${END}${part}` : part)).join(""), expressions, place).calls();
  };
  return textOf(source, 0) + text.slice(source.end);
}

/** Reads one template, as htm does. Every line break of the text is one of the calls. */
class Template {
  /** @param {string} text @param {string[]} expressions @param {string} place */
  constructor(text, expressions, place) {
    Object.assign(this, { text, expressions, place, at: 0 });
  }

  calls() {
    const children = this.children();
    if (this.at < this.text.length) this.fail("a tag is closed that was not opened");
    return `__template(html, [${children.join(", ")}])`;
  }

  children() {
    const found = [];
    while (this.at < this.text.length && !this.text.startsWith("</", this.at)) {
      if (this.text[this.at] === START) found.push(this.expression());
      else if (this.text.startsWith("<!--", this.at)) found.push(breaksOf(this.through("-->")));
      else if (this.text[this.at] === "<") found.push(this.tag());
      else {
        const words = this.upTo(/[<\u0001]/);
        found.push(breaksOf(words) + (words.trim() && JSON.stringify(words.trim())));
      }
    }
    return found;
  }

  tag() {
    this.at += 1;
    const isComponent = this.text[this.at] === START;
    const name = isComponent ? this.expression() : JSON.stringify(this.upTo(/[\s/>]/));
    const properties = [];
    let isClosed = false;
    for (;;) {
      const breaks = breaksOf(this.upTo(/\S/));
      if (this.at >= this.text.length) this.fail(`the tag ${name} does not end`);
      if (this.text[this.at] === ">") {
        this.at += 1;
        properties.push(breaks);
        break;
      }
      if (this.text.startsWith("/>", this.at)) {
        this.at += 2;
        isClosed = true;
        properties.push(breaks);
        break;
      }
      properties.push(breaks + this.property(isComponent));
    }
    const children = isClosed ? [] : this.children();
    if (!isClosed) {
      if (!this.text.startsWith("</", this.at)) this.fail(`the tag ${name} is not closed`);
      this.through(">");
    }
    // A name that is computed is one of elements: `<${isPage ? "h1" : "h2"}>`.
    if (!isComponent || !/^\(\s*[\w.]+\s*\)$/.test(name)) return `__element(${name}, {${joined(properties)}}, [${joined(children)}])`;
    const shown = children.filter((child) => child.trim()).length;
    if (shown) properties.push(`children: ${shown === 1 ? joined(children) : `[${joined(children)}]`}`);
    // A component without properties may take none: htm gives it an empty object all the same.
    const isBare = properties.every((one) => !one.trim() || one.trimStart().startsWith(KEY));
    return isBare ? `__component(${name}, {${joined(properties)}})` : `${name}({${joined(properties)}})`;
  }

  property(isComponent) {
    if (this.text.startsWith("...", this.at)) {
      this.at += 3;
      return `...${this.expression()}`;
    }
    const name = this.upTo(/[\s=>/]/);
    if (!name) this.fail("a property has no name");
    if (this.text[this.at] !== "=") return `${JSON.stringify(name)}: true`;
    this.at += 1;
    const value = this.value();
    return isComponent && name === "key" ? `${KEY}(${value})` : `${JSON.stringify(name)}: ${value}`;
  }

  value() {
    const quote = this.text[this.at];
    const isQuoted = quote === '"' || quote === "'";
    if (isQuoted) this.at += 1;
    const end = isQuoted ? new RegExp(`[${quote}\u0001]`) : /[\s>\u0001]|\/>/;
    const parts = [];
    for (;;) {
      const words = this.upTo(end);
      if (words) parts.push(breaksOf(words) + JSON.stringify(words));
      if (this.text[this.at] !== START) break;
      parts.push(this.expression());
    }
    if (isQuoted) this.at += 1;
    return parts.length === 1 ? parts[0] : `("" + ${parts.join(" + ") || '""'})`;
  }

  expression() {
    if (this.text[this.at] !== START) this.fail("an expression is missing");
    return `(${this.expressions[Number(this.through(END).slice(1, -1))]})`;
  }

  /** @param {RegExp} end @returns {string} */
  upTo(end) {
    const length = this.text.slice(this.at).search(end);
    const found = length < 0 ? this.text.slice(this.at) : this.text.slice(this.at, this.at + length);
    this.at += found.length;
    return found;
  }

  /** @param {string} end @returns {string} */
  through(end) {
    const to = this.text.indexOf(end, this.at);
    if (to < 0) this.fail(`${end} is missing`);
    const found = this.text.slice(this.at, to + end.length);
    this.at = to + end.length;
    return found;
  }

  fail(why) {
    throw new Error(`${this.place}: a template cannot be read: ${why}`);
  }
}

const breaksOf = (text) => "\n".repeat(text.split("\n").length - 1);

/** Parts with commas between those that are more than line breaks. @param {string[]} parts */
function joined(parts) {
  let text = "";
  let hasOne = false;
  for (const part of parts) {
    text += part.trim() && hasOne ? `, ${part}` : part;
    hasOne ||= Boolean(part.trim());
  }
  return text;
}

function check() {
  const { config } = ts.readConfigFile(path.join(PAGE, "jsconfig.json"), ts.sys.readFile);
  const { options, fileNames, errors } = ts.parseJsonConfigFileContent(config, ts.sys, PAGE);
  const host = ts.createCompilerHost(options);
  const { readFile, getSourceFile, fileExists } = host;
  host.fileExists = (name) => name === DECLARATIONS || name === WRONG || fileExists(name);
  host.getSourceFile = (name, version, ...more) => {
    const isOurs = name.startsWith(PAGE + path.sep) && !name.startsWith(VENDOR) && name.endsWith(".js");
    if (name === DECLARATIONS) return ts.createSourceFile(name, DECLARED, version);
    const text = name === WRONG ? WRONG_TEXT : isOurs ? readFile(name) : "";
    return isOurs ? ts.createSourceFile(name, readTemplates(name, text), version, true, ts.ScriptKind.JS) : getSourceFile(name, version, ...more);
  };
  const program = ts.createProgram([...fileNames, DECLARATIONS, WRONG], options, host);
  const all = [...errors, ...ts.getPreEmitDiagnostics(program)];
  const lineOf = ({ file, start }) => file.getLineAndCharacterOfPosition(start).line + 1;
  const told = [...new Set(all.filter(({ file }) => file?.fileName === WRONG).map(lineOf))].join();
  const wrong = WRONG_TEXT.split("\n").flatMap((line, at) => (line.includes("nonsense") ? [at + 1] : [])).join();
  if (told !== wrong) throw new Error(`the check does not work: it finds errors in the lines ${told || "none"} of WRONG_TEXT, and they are in ${wrong}`);
  const found = all.filter(({ file }) => file?.fileName !== WRONG);
  for (const one of found) {
    const place = one.file ? `${path.relative(ROOT, one.file.fileName)}:${lineOf(one)}: ` : "";
    process.stdout.write(`${place}${ts.flattenDiagnosticMessageText(one.messageText, "\n")}\n`);
  }
  process.stdout.write(found.length ? `${found.length} errors\n` : `${fileNames.length} files are well typed\n`);
  return found.length ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = check();
