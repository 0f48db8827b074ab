#!/bin/bash
# Packets of every kind and of none, by the thousand, from a member of the network with
# forged addresses, while bystanders work.
# vm: --meta --nodes 3
# checks: 14
exec weft-check packets --packets 5000
