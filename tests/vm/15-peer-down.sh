#!/bin/bash
# A peer whose link is down is an error in time, and for nobody else; and its node
# comes back.
# vm: --meta --nodes 3
# checks: 12
exec weft-check peer-down
