#!/bin/sh
# Makes sure that the programs named as arguments (python, maven, chromium) are there. On Debian and its like as root a
# missing one is installed, after saying so; elsewhere one sentence names the packages, and the exit code is 1.
has() { # whether one of these programs is there
  for program in "$@"; do command -v "$program" >/dev/null && return; done
  return 1
}
packages=""
for need in "$@"; do
  case $need in
    python)
      python=$("$(dirname "$0")/choose_python.sh")
      "$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        packages="$packages python3 python3-venv" ;;
    maven)
      # Only the local broker needs it.
      [ -n "$LOOMLOG_KAFKA" ] || has mvn || packages="$packages maven" ;;
    chromium)
      [ -n "$LOOMLOG_CHROMIUM" ] || has chromium chromium-browser google-chrome ||
        packages="$packages chromium" ;;
    *) echo "install_missing.sh: unknown: $need" >&2; exit 2 ;;
  esac
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Missing here:$packages (the names of Debian's packages; with Homebrew python, maven, chromium). Install them and try again." >&2
  exit 1
fi
echo "installing what is missing:$packages (apt-get)" >&2
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2
