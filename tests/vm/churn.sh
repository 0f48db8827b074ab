#!/bin/bash
# 64 threads with rings of their own, and 64 whose completions go to one ring, while their
# processes are killed: no request is lost or done twice.
# vm: --meta --nodes 2
# checks: 3
exec weft-check churn
