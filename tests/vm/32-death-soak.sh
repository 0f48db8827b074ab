#!/bin/bash
# One of four processes that exchange data is killed again and again; the others
# see error completions on the VQPs to it, and nothing else.
# vm: --meta --nodes 2
# checks: 3
exec weft-check death-soak --kills 30
