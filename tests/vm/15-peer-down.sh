#!/bin/bash
# A peer whose link is down is an error in time, and for nobody else.
# vm: --meta --nodes 3
exec weft-check peer-down
