#!/bin/bash
# scripts/journeys.sh: makes the list of doc/journeys.md, the journey of one process: runs/journeys/one.md. It is measured
# here, and `make docs` inserts it.
set -euo pipefail
cd "$(dirname "$0")/.." || exit 1
mkdir -p runs/journeys
RUN='build/train tiny --run.steps=2' MARKDOWN=1 scripts/journey.sh >runs/journeys/one.tmp
mv runs/journeys/one.tmp runs/journeys/one.md
