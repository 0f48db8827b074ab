#!/bin/bash
# Memory windows: further keys to a region, with rights, ranges and ends of their own, by DC
# and by RC; their pages are pinned and charged once.
# vm: --meta --nodes 2 --timeout 600
# checks: 17
exec weft-check memory-windows
