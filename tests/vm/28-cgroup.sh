#!/bin/bash
# What a process has of a node is charged to its cgroup, whose limit stops it alone.
# vm: --meta --nodes 2 --cgroups
# checks: 7
exec weft-check cgroup
