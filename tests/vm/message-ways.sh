#!/bin/bash
# Messages to a pinned peer: their packets take UDP or the queue pair, whichever is faster,
# and none is lost when the queue pair, or the one of their packets alone, is cut off.
# vm: --meta --nodes 2 --timeout 1500
# checks: 13
exec weft-check message-ways
