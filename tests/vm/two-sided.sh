#!/bin/bash
# Messages: sizes, pieces, immediates, order, many senders and replies to each,
# receivers without buffers, with bad ones, and those that go.
# vm: --meta --nodes 2
# checks: 29
exec weft-check two-sided
