#!/bin/bash
# VQPs that change between DC and RC while they are busy.
# vm: --meta --nodes 2 --mem 2048 --timeout 600
# checks: 5
exec weft-check moves
