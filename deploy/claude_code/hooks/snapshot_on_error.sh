#!/bin/sh
# Makes a state file after a run that failed, when LOOMLOG_PLUGIN_AUTO_SNAPSHOT=1. It never fails, and takes at most 10 s.
[ "$LOOMLOG_PLUGIN_AUTO_SNAPSHOT" = 1 ] || exit 0
grep -q '\\*"status\\*": *\\*"failed' || exit 0
timeout 10 loomlog backup create --label "a run failed in Claude Code" >/dev/null 2>&1
exit 0
