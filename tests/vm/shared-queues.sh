#!/bin/bash
# Rings that many VQPs share, and VQPs that are not connected: one call for many peers,
# nobody's mistake is another's, no completion is lost.
# vm: --meta --nodes 3 --mem 2048 --timeout 900
# checks: 86
exec weft-check shared-queues
