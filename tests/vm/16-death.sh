#!/bin/bash
# A worker that is killed between any two calls, or at any moment, leaves
# nothing behind, and a bystander does not notice.
# vm: --meta --nodes 2
# checks: 27
exec weft-check death
