#!/bin/bash
# One-sided requests by RC queue pairs: data, order across changes of transport,
# mistakes, regions that go, deaths, queue pairs that break and come back.
# vm: --meta --nodes 3 --mem 2048 --timeout 600
# checks: 158
exec weft-check rc
