#!/bin/sh
# Prints the Python that the Makefile makes its environment with: the first one that is new enough, can make environments
# and was built with profile-guided optimisation, which takes 15 to 20 % less CPU; otherwise python3.
# Those of distributions (below /usr) are built that way; others say so in their configuration.
suitable='
import sys, sysconfig
import ensurepip, venv
optimised = sys.base_prefix == "/usr" or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
sys.exit(sys.version_info < (3, 11) or not optimised)
'
for python in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
  if "$python" -c "$suitable" 2>/dev/null; then echo "$python"; exit; fi
done
echo python3
