// A code agent: finds what is left to do in a volume and writes it down. No model, no cost, the same every time.
//
//   agents:
//     todo-report:
//       provider: code-js
//       tools: [Grep, Write]
//       volumes: [source, out]
//
// with LOOMLOG_CODE_AGENTS_ENABLED=1 and LOOMLOG_CODE_AGENTS_ROOT=docs/examples/agent_code. The prompt is the word to look
// for; TODO when it is empty. Each tool call is a turn of the run: kill any process in the middle and the run goes on
// where it was, because the script is executed again with the results that the log has.

const LINE = /^(.+?):(\d+):(.*)$/;

function run(input) {
  const word = input.prompt.trim() || "TODO";
  const found = Grep({ pattern: word, output_mode: "content", volume: "source", head_limit: 500 });
  const places = found.split("\n").map((line) => LINE.exec(line)).filter(Boolean);
  const byFile = new Map();
  for (const [, file, line, text] of places) {
    byFile.set(file, [...(byFile.get(file) ?? []), `- line ${line}: ${text.trim()}`]);
  }
  const parts = [...byFile].sort().map(([file, lines]) => `## ${file}\n\n${lines.join("\n")}\n`);
  const report = `# ${places.length} places with ${word}\n\n${parts.join("\n")}`;
  try {
    Write({ path: "todo.md", content: report, volume: "out" });
  } catch (error) {
    return { final_text: `${places.length} places with ${word}; the report could not be written: ${error.message}` };
  }
  return { final_text: `${places.length} places with ${word} in ${byFile.size} files, see todo.md` };
}
