#!/usr/bin/env bash
# Work in steps. Each is saved, so that the next attempt goes on where this one was killed.
set -euo pipefail
for step in $(seq "${OUTLAST_CHECKPOINT:-1}" "$1"); do
    sleep 0.2 && echo "step $step" # the work
    outlast checkpoint "$((step + 1))" # fails if the job is another worker's by now: then end
    outlast report "$(awk "BEGIN { print $step / $1 }")" "step $step of $1"
done
