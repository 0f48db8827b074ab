#!/bin/bash
# Every senseless request gets its documented errno, in time.
# vm: --meta --nodes 2
# checks: 258
exec weft-check bad-calls
