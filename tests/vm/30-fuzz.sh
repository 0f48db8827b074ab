#!/bin/bash
# Anything at all said to the device, by several processes at once: all of it is
# answered, and a bystander does not notice.
# vm: --meta --nodes 2
# checks: 9
exec weft-check fuzz --ops 20000
