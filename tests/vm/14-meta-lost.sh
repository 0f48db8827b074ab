#!/bin/bash
# Without a meta server, with one that is stopped, killed, and started again.
# The module is loaded without one.
# vm: --nodes 2
# checks: 20
exec weft-check meta-lost
