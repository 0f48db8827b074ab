#!/bin/bash
# What is written arrives: sizes, offsets, order, queues, crowds of VQPs,
# threads and processes.
# vm: --meta --nodes 2
# checks: 17
exec weft-check data
