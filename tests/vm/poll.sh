#!/bin/bash
# poll(2) and epoll on /dev/weft, and eventfds of completion rings: they tell of completions.
# vm: --meta --nodes 2
# checks: 27
exec weft-check poll
