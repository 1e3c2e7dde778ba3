#!/bin/sh
# Appends the call and its result as one line of JSON, when LOOMLOG_PLUGIN_TELEMETRY=1. It never fails.
[ "$LOOMLOG_PLUGIN_TELEMETRY" = 1 ] || exit 0
file="${LOOMLOG_PLUGIN_TELEMETRY_FILE:-$HOME/.loomlog/claude_code_runs.jsonl}"
mkdir -p "$(dirname "$file")" 2>/dev/null
tr -d '\n' 2>/dev/null >>"$file" && echo >>"$file"
exit 0
