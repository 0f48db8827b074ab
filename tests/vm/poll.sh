#!/bin/bash
# poll(2) and epoll on /dev/weft: they tell of completions of every VQP of a session.
# vm: --meta --nodes 2
# checks: 16
exec weft-check poll
